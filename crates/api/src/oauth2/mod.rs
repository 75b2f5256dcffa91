//! OAuth endpoints: resource servers accept keys as access tokens by a standard protocol.

pub mod introspect;
mod root_key;
mod wire;

use super::{OperationTable, TableBuilder};
pub use wire::OAuth2;

pub fn operation_table() -> OperationTable {
    TableBuilder::<OAuth2>::new().with_operation::<introspect::Introspect>().build()
}
