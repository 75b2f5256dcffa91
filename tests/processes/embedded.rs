//! Tests an embedded server that is killed, and one whose disk is full, with real processes.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use foundation::clock::Stopwatch;
use serde_json::{Value, json};

use crate::acquire_turn;
use crate::client::Client;
use crate::faults::{ROOT_KEY, assert_valid, verify};
use crate::support::process::{Server, keyward_command};

const GRANTED: i64 = 10_000_000;

fn embedded(command: &mut Command, data_dir: &Path) {
    command
        .env("KEYWARD_DATA_DIR", data_dir)
        .env("KEYWARD_ROOT_KEY", ROOT_KEY)
        .env("KEYWARD_DRAIN_SECONDS", "0")
        .env("KEYWARD_LOG", "off");
}

fn start(data_dir: &Path) -> Server {
    let mut command = keyward_command();
    embedded(&mut command, data_dir);
    Server::start(command)
}

fn data(server: &Server, operation: &str, body: &Value) -> Value {
    let (status, answer) = server.v2(ROOT_KEY, operation, body);
    assert_eq!(status, 200, "{operation}: {answer}");
    answer["data"].clone()
}

fn api(server: &Server) -> Value {
    data(server, "apis.createApi", &json!({ "name": "payments" }))["apiId"].clone()
}

/// Creates a key with this many credits and a limit that is never reached.
fn metered(server: &Server, api: &Value) -> Value {
    let limit =
        json!({ "name": "requests", "limit": GRANTED, "duration": 60_000, "autoApply": true });
    let request =
        json!({ "apiId": api, "credits": { "remaining": GRANTED }, "ratelimits": [limit] });
    data(server, "keys.createKey", &request)
}

fn remaining(server: &Server, key: &Value) -> i64 {
    let request = json!({ "keyId": key["keyId"] });
    data(server, "keys.getKey", &request)["credits"]["remaining"].as_i64().unwrap()
}

/// Repeats a request until the server stops. Returns the responses; one more request may have been executed.
fn repeat(address: SocketAddr, operation: &'static str, body: Value) -> JoinHandle<Vec<Value>> {
    thread::spawn(move || {
        let mut client = Client::new(address);
        let mut answers = Vec::new();
        while let Ok(answer) = client.v2(ROOT_KEY, operation, &body) {
            assert_eq!(answer.status, 200, "{}", answer.body);
            let answer: Value = serde_json::from_str(&answer.body).unwrap();
            answers.push(answer["data"].clone());
        }
        answers
    })
}

#[test]
fn killed_server_keeps_confirmed_spends_and_withholds_nothing() {
    const SPENDERS: usize = 16;
    let _turn = acquire_turn();
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path());
    let api = api(&server);
    let key = metered(&server, &api);
    let (mut answered, mut unanswered) = (0, 0);
    for round in 0..4 {
        let spend = json!({ "key": key["key"] });
        let spenders: Vec<_> = (0..SPENDERS)
            .map(|_| repeat(server.address, "keys.verifyKey", spend.clone()))
            .collect();
        let creators: Vec<_> = (0..4)
            .map(|_| repeat(server.address, "keys.createKey", json!({ "apiId": api })))
            .collect();
        thread::sleep(Duration::from_millis(500 + 130 * round));

        server.signal("KILL");
        server.wait();
        for spender in spenders {
            let answers = spender.join().unwrap();
            assert!(answers.iter().all(|answer| answer["code"] == "VALID"));
            answered += i64::try_from(answers.len()).unwrap();
            unanswered += 1;
        }
        server = start(directory.path());

        let spent = GRANTED - remaining(&server, &key);
        assert!(answered > 0);
        assert!(
            (answered..=answered + unanswered).contains(&spent),
            "{spent} spent; {answered} answered, {unanswered} in flight"
        );
        let created: Vec<_> = creators.into_iter().flat_map(|c| c.join().unwrap()).collect();
        assert!(!created.is_empty());
        for key in created.iter().rev().take(40) {
            assert_valid(&verify(&server, key["key"].as_str().unwrap()));
        }
    }
}

/// A disk of a few bytes: a file system in memory if this user may mount one, otherwise a limit on the size of files.
/// In both cases the server's writes fail in the kernel.
enum SmallDisk {
    Mounted,
    Bounded,
}

impl SmallDisk {
    /// Creates the disk. Returns it and a command that starts a server on it.
    fn command(directory: &Path) -> (Self, Command) {
        let binary = keyward_command().get_program().to_owned();
        let script = "mount -t tmpfs -o size=6m keyward \"$1\" && shift && exec \"$@\"";
        let unshared = |script: &str| {
            let mut command = Command::new("unshare");
            command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
            command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c", script, "sh"]);
            command.arg(directory);
            command
        };
        let tried = unshared(script).arg("true").stderr(Stdio::null()).status();
        let (disk, mut command) = if tried.is_ok_and(|status| status.success()) {
            (Self::Mounted, unshared(script))
        } else {
            let mut command = Command::new("sh");
            command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
            // A write beyond the limit then fails instead of ending the process.
            command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
            (Self::Bounded, command)
        };
        command.arg(binary);
        embedded(&mut command, directory);
        (disk, command)
    }

    /// Returns a file on the disk as the server sees it.
    fn path(server: &Server, directory: &Path, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", server.pid()));
        root.join(directory.strip_prefix("/").unwrap()).join(name)
    }

    fn fill(&self, server: &Server, directory: &Path) {
        match self {
            Self::Mounted => {
                let path = Self::path(server, directory, "filler");
                let mut filler = File::create(path).unwrap();
                while filler.write_all(&[1; 4096]).is_ok() {}
            }
            Self::Bounded => {
                let log = Self::path(server, directory, "keyward.db-wal");
                let bound = OpenOptions::new().read(true).open(log).unwrap().metadata().unwrap();
                set_file_size(server, &(bound.len() + 65_536).to_string());
            }
        }
    }

    fn free(&self, server: &Server, directory: &Path) {
        match self {
            Self::Mounted => {
                std::fs::remove_file(Self::path(server, directory, "filler")).unwrap();
            }
            Self::Bounded => set_file_size(server, "unlimited"),
        }
    }
}

fn set_file_size(server: &Server, bound: &str) {
    let (pid, bound) = (server.pid().to_string(), format!("--fsize={bound}:"));
    let status = Command::new("prlimit").args(["--pid", &pid, &bound]).status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit {bound}");
}

#[test]
fn server_returns_503_when_disk_is_full_and_recovers_without_restart() {
    let _turn = acquire_turn();
    let directory = tempfile::tempdir().unwrap();
    let (disk, command) = SmallDisk::command(directory.path());
    let server = Server::start(command);
    let api = api(&server);
    let key = metered(&server, &api);
    let plain = data(&server, "keys.createKey", &json!({ "apiId": api }));
    let plain = plain["key"].as_str().unwrap();
    let spend = || verify(&server, key["key"].as_str().unwrap());
    assert_valid(&verify(&server, plain));
    let mut valid = 0;

    for _ in 0..2 {
        assert_valid(&spend());
        valid += 1;
        disk.fill(&server, directory.path());
        let mut refused = 0;
        for _ in 0..5_000 {
            match spend() {
                (200, answer) => {
                    assert_eq!(answer["data"]["code"], "VALID", "{answer}");
                    valid += 1;
                }
                (status, answer) => {
                    assert_eq!(status, 503, "{answer}");
                    refused += 1;
                }
            }
            if refused == 50 {
                break;
            }
        }
        assert_eq!(refused, 50);
        let (status, answer) = server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api }));
        assert_eq!(status, 503, "{answer}");
        assert_valid(&verify(&server, plain));
        assert_eq!(remaining(&server, &key), GRANTED - valid);

        disk.free(&server, directory.path());
        let began = Stopwatch::new();
        while spend().0 != 200 {
            assert!(began.elapsed() < Duration::from_secs(2), "the server does not recover");
        }
        valid += 1;
        data(&server, "keys.createKey", &json!({ "apiId": api }));
        assert_eq!(remaining(&server, &key), GRANTED - valid);
    }
}

/// A service manager restarts a server like this.
#[test]
fn server_starts_and_verifies_when_disk_is_full() {
    let _turn = acquire_turn();
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path());
    let api = api(&server);
    let plain = data(&server, "keys.createKey", &json!({ "apiId": api }));
    let plain = plain["key"].as_str().unwrap();
    server.signal("KILL");
    server.wait();
    let log = directory.path().join("keyward.db-wal").metadata().unwrap().len();

    let mut command = Command::new("sh");
    command.env_clear().env("PATH", std::env::var("PATH").unwrap_or_default());
    // No file may grow, and a write beyond the limit fails instead of ending the process.
    let script = "trap '' XFSZ; ulimit -f \"$1\"; shift; exec \"$@\"";
    command
        .args(["-c", script, "sh", &(log / 512).to_string()])
        .arg(keyward_command().get_program());
    embedded(&mut command, directory.path());
    let server = Server::start(command);

    assert_valid(&verify(&server, plain));
    let (status, answer) = server.v2(ROOT_KEY, "keys.createKey", &json!({ "apiId": api }));
    assert_eq!(status, 503, "{answer}");
}
