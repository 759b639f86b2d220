//! Checks an expression against the schema of its variables: each variable, field and function must exist and be
//! supported.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::names::escape;
use crate::schema::structural::{DataType, StructuralSchema};

/// Functions that are called by name alone.
const FUNCTIONS: &[&str] = &["bool", "double", "duration", "dyn", "int", "matches", "size", "string"];

/// Functions that are called on a value, all of which Kubernetes has too.
const METHODS: &[&str] = &[
    "charAt",
    "contains",
    "endsWith",
    "hasValue",
    "indexOf",
    "join",
    "lastIndexOf",
    "lowerAscii",
    "matches",
    "orValue",
    "replace",
    "size",
    "split",
    "startsWith",
    "substring",
    "trim",
    "upperAscii",
    "value",
];

const OPERATORS: &[&str] = &[
    operators::ADD,
    operators::CONDITIONAL,
    operators::DIVIDE,
    operators::EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::IN,
    operators::INDEX,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::LOGICAL_AND,
    operators::LOGICAL_NOT,
    operators::LOGICAL_OR,
    operators::MODULO,
    operators::MULTIPLY,
    operators::NEGATE,
    operators::NOT_EQUALS,
    operators::NOT_STRICTLY_FALSE,
    operators::SUBSTRACT,
];

/// Type of a part of an expression, as far as it is known.
#[derive(Clone, Copy)]
enum Type<'a> {
    /// A value of this schema.
    Of(&'a StructuralSchema),
    /// An optional value of this schema.
    Optional(&'a StructuralSchema),
    /// Anything: fields of it are found when it is evaluated.
    Dynamic,
}

/// Checks an expression over `self` and `oldSelf`. Returns whether it reads `oldSelf`.
pub(super) fn check(expression: &IdedExpr, node: &StructuralSchema, optional_old: bool) -> Result<bool, String> {
    let mut checker = Checker { node, optional_old, uses_old: false, scope: Vec::new() };
    checker.infer(expression)?;
    Ok(checker.uses_old)
}

struct Checker<'a> {
    node: &'a StructuralSchema,
    optional_old: bool,
    uses_old: bool,
    /// The variables of comprehensions, the innermost last.
    scope: Vec<(String, Type<'a>)>,
}

impl<'a> Checker<'a> {
    fn infer(&mut self, expression: &IdedExpr) -> Result<Type<'a>, String> {
        match &expression.expr {
            Expr::Literal(_) => Ok(Type::Dynamic),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let operand = self.infer(&select.operand)?;
                field(operand, &select.field, select.test)
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                list.elements.iter().try_for_each(|element| self.infer(element).map(drop))?;
                Ok(Type::Dynamic)
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key)?;
                        self.infer(&entry.value)?;
                    }
                }
                Ok(Type::Dynamic)
            }
            Expr::Struct(literal) => Err(format!("type {} is not supported", literal.type_name)),
            Expr::Unspecified => Err("the expression is empty".to_owned()),
        }
    }

    fn variable(&mut self, name: &str) -> Result<Type<'a>, String> {
        if let Some((_, found)) = self.scope.iter().rev().find(|(variable, _)| variable == name) {
            return Ok(*found);
        }
        match name {
            "self" => Ok(Type::Of(self.node)),
            "oldSelf" => {
                self.uses_old = true;
                Ok(if self.optional_old { Type::Optional(self.node) } else { Type::Of(self.node) })
            }
            _ => Err(format!("undeclared reference to '{name}'")),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<Type<'a>, String> {
        let name = call.func_name.as_str();
        let allowed = match &call.target {
            Some(_) => METHODS.contains(&name),
            None => FUNCTIONS.contains(&name) || OPERATORS.contains(&name),
        };
        if !allowed {
            return Err(format!("function {name} is not supported"));
        }
        let target = call.target.as_ref().map(|target| self.infer(target)).transpose()?;
        let arguments: Vec<Type<'a>> =
            call.args.iter().map(|argument| self.infer(argument)).collect::<Result<_, _>>()?;
        if name == "matches" {
            call.args.last().map_or(Ok(()), pattern)?;
        }
        match (name, target, arguments.as_slice()) {
            (operators::CONDITIONAL, None, [_, then, _]) => Ok(*then),
            (operators::INDEX, None, [of, _]) => element(*of),
            (operators::EQUALS | operators::NOT_EQUALS | operators::ADD, None, arguments) => {
                let unordered = |of: &Type<'_>| matches!(of, Type::Of(n) | Type::Optional(n) if n.has_unordered_list());
                if arguments.iter().any(unordered) {
                    return Err(format!("{name} of a list that is a set or a map is not supported"));
                }
                Ok(Type::Dynamic)
            }
            ("value" | "orValue", Some(Type::Optional(node)), _) => Ok(Type::Of(node)),
            _ => Ok(Type::Dynamic),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<Type<'a>, String> {
        let range = self.infer(&comprehension.iter_range)?;
        self.infer(&comprehension.accu_init)?;
        let variable = match range {
            Type::Of(node) if node.data_type == Some(DataType::Array) => element(range)?,
            _ => Type::Dynamic, // such as the keys of a map
        };
        let depth = self.scope.len();
        self.scope.push((comprehension.iter_var.clone(), variable));
        self.scope.push((comprehension.accu_var.clone(), Type::Dynamic));
        self.infer(&comprehension.loop_cond)?;
        self.infer(&comprehension.loop_step)?;
        self.infer(&comprehension.result)?;
        self.scope.truncate(depth);
        Ok(Type::Dynamic)
    }
}

fn field<'a>(of: Type<'a>, name: &str, is_test: bool) -> Result<Type<'a>, String> {
    let (node, wrap): (_, fn(&'a StructuralSchema) -> Type<'a>) = match of {
        Type::Of(node) => (node, Type::Of),
        Type::Optional(node) => (node, Type::Optional),
        Type::Dynamic => return Ok(Type::Dynamic),
    };
    let undefined = || format!("undefined field '{name}'");
    if node.data_type != Some(DataType::Object) {
        return Err(undefined());
    }
    let declared = node.declared_fields().find(|field| escape(field).as_deref() == Some(name));
    let found =
        declared.map_or(node.additional.as_deref(), |field| node.readable_field(field)).ok_or_else(undefined)?;
    if is_test { Ok(Type::Dynamic) } else { readable(found).map(wrap) }
}

/// Returns the type of an item of a list, or of a value of a map.
fn element(of: Type<'_>) -> Result<Type<'_>, String> {
    let Type::Of(node) = of else { return Ok(Type::Dynamic) };
    match node.items.as_deref().or(node.additional.as_deref()) {
        Some(element) => readable(element).map(Type::Of),
        None => Ok(Type::Dynamic),
    }
}

fn readable(node: &StructuralSchema) -> Result<&StructuralSchema, String> {
    if node.validation.date_time { Err("timestamps are not supported".to_owned()) } else { Ok(node) }
}

/// Checks a pattern that is written in the expression.
fn pattern(argument: &IdedExpr) -> Result<(), String> {
    let Expr::Literal(LiteralValue::String(text)) = &argument.expr else { return Ok(()) };
    regex::Regex::new(text.inner()).map(drop).map_err(|error| error.to_string())
}
