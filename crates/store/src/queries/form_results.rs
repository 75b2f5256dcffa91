//! Implements reads and writes of what the forms of the dashboard created.

use async_trait::async_trait;
use foundation::clock::Timestamp;
use foundation::error::Result;
use foundation::id::SessionId;
use sqlx::{query, query_as};

use super::Connection;
use crate::{FormResult, FormResultReads, FormResultWrites};

macro_rules! form_result_sql {
    () => {
        "SELECT created_id, sealed, shown_at, created_at
        FROM form_results
        WHERE session_id = $1 AND form = $2"
    };
}

#[async_trait]
impl FormResultReads for Connection {
    async fn find_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
    ) -> Result<Option<FormResult>> {
        Ok(query_as(form_result_sql!()).bind(session).bind(form).fetch_optional(self).await?)
    }
}

#[async_trait]
impl FormResultWrites for Connection {
    async fn insert_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
        result: &FormResult,
    ) -> Result<bool> {
        let sql = "
            INSERT INTO form_results (session_id, form, created_id, sealed, shown_at, created_at)
            VALUES ($1, $2, $3, $4, $5, $6)
            ON CONFLICT (session_id, form) DO NOTHING";
        let query = query(sql)
            .bind(session)
            .bind(form)
            .bind(&result.created_id)
            .bind(&result.sealed)
            .bind(result.shown_at)
            .bind(result.created_at);
        Ok(query.execute(self).await?.rows_affected() == 1)
    }

    async fn lock_form_result(
        &mut self,
        session: &SessionId,
        form: &str,
    ) -> Result<Option<FormResult>> {
        let sql = locked!(form_result_sql!());
        Ok(query_as(sql).bind(session).bind(form).fetch_optional(self).await?)
    }

    async fn delete_form_secret(
        &mut self,
        session: &SessionId,
        form: &str,
        shown_at: Timestamp,
    ) -> Result<()> {
        let sql = "
            UPDATE form_results SET sealed = NULL, shown_at = $3
            WHERE session_id = $1 AND form = $2";
        query(sql).bind(session).bind(form).bind(shown_at).execute(self).await?;
        Ok(())
    }

    async fn prune_form_results(
        &mut self,
        secrets_until: Timestamp,
        until: Timestamp,
        max: i64,
    ) -> Result<()> {
        let secrets = "
            UPDATE form_results SET sealed = NULL
            WHERE (session_id, form) IN (
                SELECT session_id, form FROM form_results
                WHERE created_at < $1 AND sealed IS NOT NULL
                LIMIT $2)";
        let results = "
            DELETE FROM form_results
            WHERE (session_id, form) IN (
                SELECT session_id, form FROM form_results
                WHERE created_at < $1
                LIMIT $2)";
        query(secrets).bind(secrets_until).bind(max).execute(&mut *self).await?;
        query(results).bind(until).bind(max).execute(self).await?;
        Ok(())
    }
}
