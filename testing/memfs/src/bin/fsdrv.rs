//! `fsdrv DIRECTORY [--threads N] [--files N] [--layout own|shared] [--phases create,list]
//! [--server PID]` runs the load in a directory. It prints a line of JSON for each phase. What is
//! created stays where unlinking is not the last of the phases.

use std::path::PathBuf;
use std::process::ExitCode;

use memfs::{Arguments, Layout, Load, Phase};

#[expect(clippy::print_stderr, reason = "a program that talks to people")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("fsdrv: {message}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "results go to standard output")]
fn run() -> Result<(), String> {
    let arguments = Arguments::of_process();
    let [directory] = arguments.words.as_slice() else {
        return Err("usage: fsdrv DIRECTORY [--threads N] [--files N] [--layout own|shared] \
             [--phases create,stat,...] [--server PID]"
            .to_owned());
    };
    let layout = match arguments.text("layout") {
        None | Some("own") => Layout::Own,
        Some("shared") => Layout::Shared,
        Some(other) => return Err(format!("--layout {other}: own or shared")),
    };
    let phases = match arguments.text("phases") {
        None => Phase::ALL.to_vec(),
        Some(names) => names
            .split(',')
            .map(|name| Phase::of_name(name).ok_or(format!("--phases {name}: no such phase")))
            .collect::<Result<_, _>>()?,
    };
    let server = arguments.number("server", 0)? as u32;
    let load = Load {
        directory: PathBuf::from(directory),
        threads: arguments.number("threads", 1)?.max(1),
        files: arguments.number("files", 5000)?.max(1),
        layout,
        phases,
        server: (server != 0).then_some(server),
    };
    for measured in load.run().map_err(|error| error.to_string())? {
        let line = serde_json::json!({
            "phase": measured.phase.name(),
            "threads": load.threads,
            "layout": if load.layout == Layout::Own { "own" } else { "shared" },
            "operations": measured.operations,
            "seconds": measured.seconds,
            "ops_per_second": measured.per_second().round(),
            "server_cpu_us_per_op": measured.server_us,
        });
        println!("{line}");
    }
    Ok(())
}
