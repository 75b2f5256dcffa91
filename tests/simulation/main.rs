//! Simulates replicas, Postgres and Redis in virtual time, with faults from a seed.
//!
//! The replicas run the program's own state machines; Postgres, Redis and the network are models. A schedule is one run
//! of about half a minute of virtual time. It depends on its seed alone, so a violation can be replayed:
//! `KEYWARD_SIMULATION_SEED=7 cargo test -p keyward-simulation`. The real servers are in `tests/nemesis`.

mod credits;
mod executor;
mod feed;
mod network;
mod regions;
mod sabotage;
mod schedules;
