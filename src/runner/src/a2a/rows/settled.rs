//! End of a task whose turn waited for a person, which the replica writes that is asked for it first.

use super::{MAX_TEXT, TaskRows, bounded, phase_name};
use crate::{
    a2a::tasks::TaskProgress,
    conversations::history::{UserName, owner_column},
    database::DatabaseError,
};

impl TaskRows {
    /// Writes the end of a task of `user` whose row says that it waits.
    ///
    /// # Errors
    /// The database did not take it.
    pub(in crate::a2a) async fn settle(
        &self,
        id: &str,
        user: &UserName,
        end: &TaskProgress,
    ) -> Result<(), DatabaseError> {
        let text = bounded(&end.text, MAX_TEXT, true);
        let write = || async {
            let row = sqlx::query(
                "UPDATE recif_tasks SET phase = $5, since = $6, text = $7, error = NULL, \
                     bytes = octet_length(message) + octet_length($7::text), updated_at = now() \
                 WHERE namespace = $1 AND agent = $2 AND id = $3 AND owner = $4 AND phase = 'input-required'",
            );
            let row = row.bind(&self.scope.namespace).bind(&self.scope.agent).bind(id).bind(owner_column(user));
            let row = row.bind(phase_name(end.phase)).bind(end.since.as_microsecond()).bind(&text);
            row.execute(self.scope.database.pool()).await.map(drop)
        };
        self.run_query(write).await
    }
}
