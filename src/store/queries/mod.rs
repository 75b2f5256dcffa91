//! Every query, once. Compiled for each engine by its dialect file, which brings `Connection` and the
//! macros `items!`, `texts!`, `array!`, `object!`, `now_ms!` and `locked!`.

mod ratelimits;
mod reads;
mod writes;

use super::Connection;
