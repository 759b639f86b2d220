//! Validates a new referenced object; action `accept`, Pending → Resolving. Checks the spec beyond what the CRD can.

use std::sync::Arc;

use async_trait::async_trait;
use crds::ReferencePhase;
use machine::{Action, ActionError};

use super::kind::ReferenceKind;
use crate::{deps::Deps, kind::Context};

/// Action `accept`; see the module.
#[derive(Debug)]
pub struct Accept;

#[async_trait]
impl<K: ReferenceKind> Action<K, Deps> for Accept {
    fn name(&self) -> &'static str {
        "accept"
    }

    fn phases(&self) -> &'static [ReferencePhase] {
        &[ReferencePhase::Pending]
    }

    async fn handle(&self, _cx: &Context, cr: Arc<K>) -> Result<Option<K>, ActionError> {
        cr.validate()?;
        Ok(Some(cr.moved_to(ReferencePhase::Resolving)))
    }
}
