//! Reading of types from database columns.

/// Lets a type be read from a column of the type `$column`, from which it can be converted (`TryFrom`). A value that
/// cannot be converted is an error of the column.
#[macro_export]
macro_rules! read_from_column {
    ($type:ty, $column:ty) => {
        impl<D: ::sqlx::Database> ::sqlx::Type<D> for $type
        where
            $column: ::sqlx::Type<D>,
        {
            fn type_info() -> D::TypeInfo {
                <$column as ::sqlx::Type<D>>::type_info()
            }

            fn compatible(column: &D::TypeInfo) -> bool {
                <$column as ::sqlx::Type<D>>::compatible(column)
            }
        }

        impl<'r, D: ::sqlx::Database> ::sqlx::Decode<'r, D> for $type
        where
            $column: ::sqlx::Decode<'r, D>,
        {
            fn decode(value: D::ValueRef<'r>) -> Result<Self, ::sqlx::error::BoxDynError> {
                Ok(Self::try_from(<$column as ::sqlx::Decode<'r, D>>::decode(value)?)?)
            }
        }
    };
}
