//! What a creation leaves: a volume that two headers agree on, or, when the power was cut in it,
//! nothing that is taken for one.

use device::Env;
use opening::create::FormatOptions;
use opening::engine::Engine;
use opening::{create, engine, header};
use testing::{CrashPolicy, SimDevice, SimEnv, sim_env};
use volume::{OpenError, OpenOptions};

fn of(engine: Engine) -> FormatOptions {
    FormatOptions { engine, ..FormatOptions::default() }
}

/// Opens the engine of a volume by its header, and closes it.
fn opens(env: &Env) -> Result<(), OpenError> {
    let header = header::find(env)?;
    let store = engine::open(env, &header, &OpenOptions::default())?;
    Ok(store.close()?)
}

#[test]
fn header_names_the_engine_and_a_volume_is_not_formatted_again() {
    for kind in Engine::ALL {
        let sim = sim_env(1);
        let env = sim.env();
        let id = create::format(&env, &of(kind)).expect("an empty disk");
        let found = header::find(&env).expect("it was made just now");
        assert_eq!(found.volume_id, id.0, "{kind:?}");
        let headers = header::headers(&env).expect("both are read");
        assert!(headers.faults(Some(&found)).is_empty(), "{kind:?}: the copy is like the header");
        opens(&env).expect("the engine that the header names opens its files");
        let before = sim.device.files();
        let again = create::format(&env, &of(kind));
        assert!(matches!(again, Err(OpenError::Exists)), "{kind:?}: {again:?}");
        assert_eq!(sim.device.files(), before, "{kind:?}: what is there stays");
    }
}

#[test]
fn power_may_be_cut_at_every_operation_of_a_creation() {
    for kind in Engine::ALL {
        let whole = sim_env(1);
        create::format(&whole.env(), &of(kind)).expect("an empty disk");
        let (mut volumes, mut none) = (0, 0);
        for at in 0..whole.device.ops() {
            let cut = SimDevice::new(1);
            cut.crash_at(at);
            let refused = create::format(&SimEnv::on(cut.clone(), 1).env(), &of(kind));
            assert!(cut.has_crashed(), "{kind:?}: the power was cut at {at}: {refused:?}");
            for policy in CrashPolicy::at(at) {
                let place = format!("{kind:?}: cut at {at}, {policy:?}");
                let left = SimEnv::on(cut.after_crash(policy, at), 1);
                let env = left.env();
                if header::is_volume(&*env.device).expect("a readable disk") {
                    opens(&env).unwrap_or_else(|error| panic!("{place}: {error}"));
                    volumes += 1;
                } else {
                    let found = header::find(&env);
                    assert!(matches!(found, Err(OpenError::NotAVolume)), "{place}: {found:?}");
                    create::format(&env, &of(kind))
                        .unwrap_or_else(|error| panic!("{place}: the next one begins: {error}"));
                    opens(&env).unwrap_or_else(|error| panic!("{place}: {error}"));
                    none += 1;
                }
            }
        }
        assert!(volumes > 0 && none > 0, "{kind:?}: {volumes} volumes, {none} without");
        let lost = whole.device.after_crash(CrashPolicy::LoseAll, 1);
        opens(&SimEnv::on(lost, 1).env()).expect("what was returned is durable");
    }
}

#[test]
fn volume_whose_headers_disagree_is_refused_and_left_as_it_is() {
    let sim = sim_env(1);
    create::format(&sim.env(), &of(Engine::Btree)).expect("an empty disk");
    let other = sim_env(2);
    create::format(&other.env(), &of(Engine::Btree)).expect("an empty disk");
    let foreign = other.device.read_file(format::volume::FILE);
    for path in [format::volume::FILE, format::volume::COPY] {
        sim.device.overwrite(path, 0, &foreign);
    }
    let files = |sim: &SimEnv| {
        let paths = sim.device.files().into_iter().map(|(path, _)| path);
        paths.map(|path| (sim.device.read_file(&path), path)).collect::<Vec<_>>()
    };
    let before = files(&sim);
    let error = opens(&sim.env()).expect_err("the store is another volume's");
    assert!(!error.to_string().is_empty(), "{error:?}");
    assert!(files(&sim) == before, "nothing is written to a volume that is refused");
}
