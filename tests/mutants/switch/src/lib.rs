//! What the mutants of `insert.py` call. The variable `MUTANT` switches one of them on. The mutants that a process reaches
//! are appended to the file `MUTANT_LOG`, so that only tests that reach a mutant are run for it.

use std::fs::File;
use std::io::Write as _;
use std::ops::{Add, Div, Mul, Sub};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ACTIVE: LazyLock<Option<usize>> =
    LazyLock::new(|| std::env::var("MUTANT").ok()?.parse().ok());
static LOG: LazyLock<Option<File>> = LazyLock::new(|| {
    File::options().append(true).create(true).open(std::env::var_os("MUTANT_LOG")?).ok()
});
static REACHED: [AtomicBool; 65_536] = [const { AtomicBool::new(false) }; 65_536];

/// Returns whether this mutant is switched on.
pub fn on(mutant: usize) -> bool {
    if LOG.is_some() && !REACHED[mutant].swap(true, Ordering::Relaxed) {
        let _ = LOG.as_ref().map(|mut log| log.write_all(format!("{mutant}\n").as_bytes()));
    }
    *ACTIVE == Some(mutant)
}

/// Each compares with an operator. One mutant has another bound, the other is the negation.
macro_rules! comparisons {
    ($($name:ident: $operator:tt $other:tt;)*) => { $(
        pub fn $name<A: PartialOrd<B> + ?Sized, B: ?Sized>(
            bound: usize, negation: usize, a: &A, b: &B,
        ) -> bool {
            if on(bound) { *a $other *b } else { on(negation) ^ (*a $operator *b) }
        }
    )* };
}

comparisons! {
    lt: < <=;
    le: <= <;
    gt: > >=;
    ge: >= >;
}

/// Each calculates with an operator, or with another one.
macro_rules! calculations {
    ($($name:ident: $trait:ident $operator:tt $other_trait:ident $other:tt;)*) => { $(
        pub fn $name<A, B>(mutant: usize, a: A, b: B) -> <A as $trait<B>>::Output
        where
            A: $trait<B> + $other_trait<B, Output = <A as $trait<B>>::Output>,
        {
            if on(mutant) { a $other b } else { a $operator b }
        }
    )* };
}

calculations! {
    add: Add + Sub -;
    sub: Sub - Add +;
    mul: Mul * Add +;
    div: Div / Mul *;
}
