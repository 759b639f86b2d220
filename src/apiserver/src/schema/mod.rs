//! The schema of a kind, as the API server applies it to custom objects: a *structural schema* in OpenAPI v3, with
//! rules in CEL.
//!
//! A write passes these steps, in this order: an apply checks the types of what it merges ([`Schema::check_types`]);
//! the object is completed and reduced ([`Schema::admit`]); then it is judged ([`Schema::validate`]), first by types
//! and limits, then by keys of lists, and by rules only if those could not fail for another reason. The words are those
//! of `kube-apiserver`, because people and programs search for them. What the schema does not say is not checked here:
//! names, labels, versions.
//!
//! A keyword, format or function that is not supported fails [`Schema::compile`].

mod admit;
mod embedded;
mod error;
mod expression;
mod go;
mod lists;
mod rule;
mod structural;
#[cfg(test)]
mod tests;
mod types;
mod validator;
mod value_validation;
mod values;

use serde_json::Value;

pub(crate) use error::FieldError;
pub(crate) use structural::ListType;

use self::{expression::RuleVariables, structural::StructuralSchema, validator::Validator};

/// A compiled `openAPIV3Schema`.
#[derive(Debug)]
pub(crate) struct Schema {
    root: StructuralSchema,
    /// The rules; none if it has none.
    rules: Option<Validator>,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a version of a CustomResourceDefinition.
    ///
    /// # Errors
    ///
    /// Names the path and the keyword or rule that is invalid or not supported.
    pub(crate) fn compile(open_api_v3: &Value) -> Result<Self, String> {
        let root = StructuralSchema::compile(open_api_v3, "", true)?;
        let rules = Validator::compile(&root, "")?;
        Ok(Self { root, rules })
    }

    /// Removes nulls that may not be, sets defaults, and removes the fields that the schema does not name. Returns the
    /// paths of these fields, sorted, such as `spec.flows[0].colour`.
    pub(crate) fn admit(&self, object: &mut Value) -> Vec<String> {
        admit::remove_nulls(&self.root, object);
        admit::set_defaults(&self.root, object);
        let mut removed = Vec::new();
        admit::prune(Some(&self.root), object, "", false, &mut removed);
        removed.sort();
        removed
    }

    /// Returns how an admitted object violates the schema, in the API server's words and order. `old`: the object that
    /// is replaced; what the update leaves as it is passes.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        values::check(&self.root, object, old, "", &mut errors);
        embedded::check(&self.root, object, "", &mut errors);
        if old.is_none_or(|old| self.repeated(old).is_empty()) {
            errors.extend(self.repeated(object));
        }
        let Some(rules) = &self.rules else { return errors };
        if errors.iter().any(|error| error.kind.blocks_rules()) {
            errors.push(FieldError::unchecked_rules());
        } else {
            let unchanged = old == Some(object);
            rules.check(&RuleVariables { node: &self.root, value: object, old }, unchanged, "", &mut errors);
        }
        errors
    }

    fn repeated(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        lists::check(&self.root, object, "", &mut errors);
        errors
    }

    /// Returns why server-side apply cannot merge an object: values of another type, fields that the schema does not
    /// name, and keys that repeat, such as `.spec.env: duplicate entries for key [name="A"]`.
    pub(crate) fn check_types(&self, object: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        types::check(&self.root, object, "", &mut errors);
        errors
    }

    /// Returns the type of the list at a path of field names, through the items of lists on the way. None: there is no
    /// list.
    pub(crate) fn list_keys(&self, path: &[&str]) -> Option<ListType> {
        self.root.list_at(path)
    }
}
