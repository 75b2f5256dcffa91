//! Translates the windows of aggregates and window functions.

use foundation::error::Result;
use sqlparser::ast::{WindowFrame, WindowFrameBound, WindowFrameUnits, WindowSpec};

use super::super::fragment::Fragment;
use super::super::scope::Scope;
use super::super::translate::Translator;
use super::super::types::{Type, TypedExpr};
use super::super::{invalid, unsupported};

impl Translator<'_> {
    /// Returns ` OVER (…)`.
    pub fn translate_window<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        window: &'q WindowSpec,
    ) -> Result<TypedExpr> {
        let WindowSpec { window_name: None, partition_by, order_by, window_frame } = window else {
            return unsupported("a window with a name");
        };
        let partition = self.translate_all(scope, partition_by)?;
        let mut sql = Fragment::word(" OVER (");
        if !partition.is_empty() {
            let list = Fragment::join(", ", partition.iter().map(|value| &value.sql));
            sql.append(&Fragment::from_template("PARTITION BY {0}", &[&list]));
        }
        let (order, sorted) = self.translate_order_by(scope, order_by, &[])?;
        sql.append(&order);
        if let Some(frame) = window_frame {
            sql.append(&self.translate_frame(scope, frame)?);
        }
        sql.append(&Fragment::word(")"));
        let parts: Vec<_> = partition.iter().chain(&sorted).collect();
        Ok(TypedExpr::from_parts(sql, Type::Null, &parts))
    }

    fn translate_frame<'q>(
        &mut self,
        scope: &mut Scope<'q>,
        frame: &'q WindowFrame,
    ) -> Result<Fragment> {
        let WindowFrame { units, start_bound, end_bound } = frame;
        let units = match units {
            WindowFrameUnits::Rows => " ROWS BETWEEN ",
            WindowFrameUnits::Range => " RANGE BETWEEN ",
            WindowFrameUnits::Groups => return unsupported("GROUPS in a window"),
        };
        let mut bound = |bound: &'q WindowFrameBound| -> Result<Fragment> {
            let (count, unbounded, counted) = match bound {
                WindowFrameBound::CurrentRow => return Ok(Fragment::word("CURRENT ROW")),
                WindowFrameBound::Preceding(count) => {
                    (count, "UNBOUNDED PRECEDING", "{0} PRECEDING")
                }
                WindowFrameBound::Following(count) => {
                    (count, "UNBOUNDED FOLLOWING", "{0} FOLLOWING")
                }
            };
            let Some(count) = count else { return Ok(Fragment::word(unbounded)) };
            match self.translate_expr(scope, count)?.constant_int() {
                Some(rows @ 0..) if units == " ROWS BETWEEN " => {
                    Ok(Fragment::from_template(counted, &[&Fragment::digits(&[rows])]))
                }
                _ => invalid("a window must count rows: ROWS BETWEEN 2 PRECEDING AND CURRENT ROW"),
            }
        };
        let start = bound(start_bound)?;
        let end = end_bound.as_ref().map_or(Ok(Fragment::word("CURRENT ROW")), bound)?;
        Ok(Fragment::join("", [&Fragment::word(units), &start, &Fragment::word(" AND "), &end]))
    }
}
