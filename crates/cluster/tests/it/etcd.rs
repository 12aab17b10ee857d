//! The coordinator over a real etcd, and over things that are none.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use cluster::{
    Advertised, Campaign, Coordinator, Error, Etcd, EtcdSettings, Holder, Lease, Put, Standing,
    holder_key,
};
use device::{Clock, SystemClock};

use crate::running::{Running, coordinator};

const VOLUME: [u8; 16] = [7; 16];
const LEASE: Duration = Duration::from_secs(2);

fn campaign(etcd: &Running, name: &str, instance: &str) -> Campaign {
    let address = format!("{name}.example:7440");
    let own = Advertised { instance: instance.to_owned(), address };
    let campaign = Campaign::new(Arc::new(etcd.coordinator()), name, own, LEASE);
    campaign.enter(VOLUME);
    campaign
}

fn theirs(name: &str, instance: &str) -> Standing {
    Standing::Theirs(Holder {
        server: name.to_owned(),
        instance: instance.to_owned(),
        address: format!("{name}.example:7440"),
    })
}

/// Calls until it succeeds: a loaded machine may be slow.
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let clock = SystemClock::new();
    for _ in 0..300 {
        if let Some(found) = found() {
            return found;
        }
        clock.sleep(Duration::from_millis(100));
    }
    panic!("{what}: not within 30 s");
}

#[test]
fn names_are_made_once_and_vanish_with_their_lease() {
    let Some(etcd) = Running::start("") else { return };
    // The first endpoint is nobody's.
    let one = coordinator(&["http://127.0.0.1:9", &etcd.url]);
    let lease = one.grant(LEASE).expect("a lease");
    let Put::Made(revision) = one.put_if_absent("a/x", b"1", Some(lease)).expect("it answers")
    else {
        panic!("it exists in a new store");
    };
    assert_eq!(one.put_if_absent("a/y", b"\0\xff", None), Ok(Put::Made(revision + 1)));
    let two = etcd.coordinator();
    let exists = two.put_if_absent("a/x", b"2", None).expect("it answers");
    let Put::Exists(item) = exists else { panic!("made twice") };
    assert_eq!((&item.value[..], item.revision, item.lease), (&b"1"[..], revision, Some(lease)));
    assert_eq!(two.get("a/x"), Ok(Some(item.clone())));
    assert_eq!(two.get("a"), Ok(None));
    let keys = |prefix| {
        let found = two.list(prefix).expect("it answers");
        found.into_iter().map(|item| item.key).collect::<Vec<_>>()
    };
    assert_eq!(keys("a/"), ["a/x", "a/y"]);
    assert_eq!(keys("b"), [""; 0]);
    assert_eq!(two.remove("a/y", revision), Ok(false));
    assert_eq!(two.remove("a/y", revision + 1), Ok(true));
    assert_eq!(two.remove("a/y", revision + 1), Ok(false));
    one.keep_alive(lease).expect("it lives");
    until("the end of a lease", || two.get("a/x").expect("it answers").is_none().then_some(()));
    assert_eq!(one.keep_alive(lease), Err(Error::LeaseEnded));
    assert_eq!(one.put_if_absent("a/x", b"3", Some(lease)), Err(Error::LeaseEnded));
    assert_eq!(one.revoke(lease), Ok(()));
    assert_eq!(one.keep_alive(Lease(5)), Err(Error::LeaseEnded));
}

#[test]
fn one_server_owns_a_volume_until_it_ends_or_is_silent() {
    let Some(etcd) = Running::start("") else { return };
    let (one, two) = (campaign(&etcd, "one", "11"), campaign(&etcd, "two", "22"));
    assert_eq!(one.standing(&VOLUME), Standing::Unknown);
    one.step().expect("it answers");
    two.step().expect("it answers");
    assert_eq!(one.standing(&VOLUME), Standing::Ours);
    assert_eq!(two.standing(&VOLUME), theirs("one", "11"));
    // A name belongs to one process.
    let again = campaign(&etcd, "one", "33");
    let refused = again.step().expect_err("the name is taken");
    assert!(matches!(&refused, Error::Refused(why) if why.contains("one.example")), "{refused}");
    // The first one keeps what it has.
    for _ in 0..3 {
        one.step().expect("it answers");
    }
    assert_eq!(one.standing(&VOLUME), Standing::Ours);
    // Silent: the other one gets it. It learns that when it is back.
    until("the next server", || {
        two.step().expect("it answers");
        (two.standing(&VOLUME) == Standing::Ours).then_some(())
    });
    until("its own name again", || one.step().ok());
    assert_eq!(one.standing(&VOLUME), theirs("two", "22"));
    // One that ends does not keep others waiting.
    two.end().expect("it answers");
    one.step().expect("it answers");
    assert_eq!(one.standing(&VOLUME), Standing::Ours);
    one.leave(&VOLUME).expect("it answers");
    assert_eq!(etcd.coordinator().get(&holder_key(&VOLUME)), Ok(None));
}

#[test]
fn an_etcd_that_is_gone_and_comes_back_changes_no_holder() {
    let Some(etcd) = Running::start("") else { return };
    let one = campaign(&etcd, "one", "11");
    one.step().expect("it answers");
    etcd.stop();
    let away = one.step().expect_err("nobody answers");
    assert!(matches!(away, Error::Unreachable(_)), "{away}");
    assert_eq!(one.standing(&VOLUME), Standing::Ours, "no news is no change");
    etcd.start_again();
    // With its lease, or with a new one if that ended.
    until("etcd answers again", || one.step().ok());
    assert_eq!(one.standing(&VOLUME), Standing::Ours);
    let two = campaign(&etcd, "two", "22");
    two.step().expect("it answers");
    assert_eq!(two.standing(&VOLUME), theirs("one", "11"));
}

#[test]
fn a_full_etcd_reports_that_and_what_it_has_is_read() {
    let Some(etcd) = Running::start("--quota-backend-bytes 65536") else { return };
    let own = etcd.coordinator();
    let value = vec![5; 8192];
    // It measures itself ten times a second.
    let full = (0..500).find_map(|i| {
        SystemClock::new().sleep(Duration::from_millis(10));
        own.put_if_absent(&format!("k{i}"), &value, None).err()
    });
    let full = full.expect("65,536 bytes are not enough");
    assert!(matches!(&full, Error::Full(why) if why.contains("127.0.0.1")), "{full:?}");
    assert!(full.to_string().contains("NOSPACE"), "{full}");
    assert!(own.get("k0").expect("it answers").is_some());
}

#[test]
fn the_password_of_a_user_is_required() {
    let Some(etcd) = Running::start("") else { return };
    etcd.post("auth/user/add", r#"{"name":"root","password":"secret"}"#);
    etcd.post("auth/user/grant", r#"{"user":"root","role":"root"}"#);
    etcd.post("auth/enable", "{}");
    let of = |user: Option<(&str, &str)>| {
        let user = user.map(|(user, password)| (user.to_owned(), password.to_owned()));
        let settings =
            EtcdSettings { endpoints: vec![etcd.url.clone()], user, ..EtcdSettings::default() };
        let clock = Arc::new(SystemClock::new());
        Etcd::new(&settings, clock, Duration::from_secs(5)).expect("an address")
    };
    assert_eq!(of(Some(("root", "secret"))).get("a"), Ok(None));
    for user in [None, Some(("root", "wrong")), Some(("nobody", "secret"))] {
        let refused = of(user).get("a").expect_err("it is no user");
        assert!(matches!(refused, Error::Refused(_)), "{user:?}: {refused:?}");
    }
    let settings = EtcdSettings {
        endpoints: vec!["http://etcd.example:2379".to_owned()],
        user: Some(("root".to_owned(), "secret".to_owned())),
        ..EtcdSettings::default()
    };
    let clear = Etcd::new(&settings, Arc::new(SystemClock::new()), Duration::from_secs(5));
    assert!(matches!(clear, Err(Error::Refused(why)) if why.contains("clear")));
}

#[test]
fn what_is_no_etcd_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answers: [&str; 4] = [
        "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n<html></html>",
        "HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nbusy",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        r#"HTTP/1.1 200 OK
content-length: 28

{"kvs":[{"key":"no base64"}]}"#,
    ];
    device::scope(|scope| {
        scope.spawn(|| {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut asked = [0; 4096];
                assert!(stream.read(&mut asked).expect("a request") > 0);
                stream.write_all(answer.replace("\n\n", "\r\n\r\n").as_bytes()).expect("a client");
            }
        });
        for _ in answers {
            let error = coordinator(&[&url]).get("a").expect_err("it is no etcd");
            let named = matches!(&error, Error::Foreign(_) | Error::Unreachable(_));
            assert!(named && error.to_string().contains("etcd"), "{error:?}");
        }
    });
    let none = EtcdSettings::default();
    let clock: Arc<SystemClock> = Arc::new(SystemClock::new());
    let wrongs = ["etcd:2379", "http://", "https://a/b", "ftp://x"];
    for endpoints in wrongs.map(|url| vec![url.to_owned()]).into_iter().chain([Vec::new()]) {
        let settings = EtcdSettings { endpoints: endpoints.clone(), ..none.clone() };
        let made = Etcd::new(&settings, Arc::clone(&clock) as _, Duration::from_secs(1));
        assert!(matches!(made, Err(Error::Refused(_))), "{endpoints:?}");
    }
}
