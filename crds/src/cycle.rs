//! Detects cycles of references: an agent with a tool that calls the same agent would wait for itself for ever.

use std::collections::BTreeSet;
use std::fmt;

use crate::RefKind;

/// Node of the reference graph: an Agent, a Flow or a Tool. Displays as `Tool/weather-api`, and with its namespace if that is
/// another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Kind of the object.
    pub kind: RefKind,
    /// Namespace of the object, if it is another one than that of the node where a search starts.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: String,
}

impl Node {
    /// Returns the node of this kind and name, in the namespace where a search starts.
    pub fn new(kind: RefKind, name: impl Into<String>) -> Self {
        Self { kind, namespace: None, name: name.into() }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{namespace}/{}", self.kind, self.name),
            None => write!(f, "{}/{}", self.kind, self.name),
        }
    }
}

/// Searches for a cycle through `start` by depth-first search and returns it as `cycle: Agent/a → Tool/t → Agent/a`, or
/// `None` if no path leads back to `start`. `uses` returns the nodes that a node calls; of several cycles the first one
/// in that order is returned. Each node is visited once.
///
/// # Example
///
/// ```
/// use crds::{RefKind, cycle::{Node, cycle_through}};
///
/// let writer = Node::new(RefKind::Agent, "writer");
/// let review = Node::new(RefKind::Tool, "review");
/// let critic = Node::new(RefKind::Agent, "critic");
/// // The writer calls the tool `review`, which calls the critic.
/// let calls = |node: &Node| match node.name.as_str() {
///     "writer" => vec![review.clone()],
///     "review" => vec![critic.clone()],
///     _ => vec![],
/// };
/// assert_eq!(cycle_through(&writer, calls), None);
///
/// // The critic calls `review` too.
/// let calls = |node: &Node| if *node == critic { vec![review.clone()] } else { calls(node) };
/// let cycle = cycle_through(&review, calls);
/// assert_eq!(cycle.as_deref(), Some("cycle: Tool/review → Agent/critic → Tool/review"));
/// assert_eq!(cycle_through(&writer, calls), None, "the writer leads into the cycle, but is not in it");
/// ```
pub fn cycle_through(start: &Node, uses: impl Fn(&Node) -> Vec<Node>) -> Option<String> {
    // The path from `start` to the current node, each node with its successors that are not visited yet.
    let mut way = vec![(start.clone(), uses(start).into_iter())];
    let mut seen = BTreeSet::new();
    while let Some((_, rest)) = way.last_mut() {
        match rest.next() {
            Some(next) if next == *start => {
                let names: Vec<_> = way.iter().map(|(node, _)| node).chain([start]).map(Node::to_string).collect();
                return Some(format!("cycle: {}", names.join(" → ")));
            }
            Some(next) => {
                if seen.insert(next.clone()) {
                    let more = uses(&next).into_iter();
                    way.push((next, more));
                }
            }
            None => drop(way.pop()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches the graph of edges such as `a>t t>b` from `start`; an upper-case name is an Agent, any other a Tool.
    fn circle(start: &str, edges: &str) -> Option<String> {
        let node = |name: &str| {
            let kind = if name.starts_with(char::is_uppercase) { RefKind::Agent } else { RefKind::Tool };
            Node::new(kind, name)
        };
        let edges: Vec<_> = edges.split_whitespace().filter_map(|edge| edge.split_once('>')).collect();
        cycle_through(&node(start), |from| {
            edges.iter().filter(|(one, _)| *one == from.name).map(|(_, other)| node(other)).collect()
        })
    }

    #[test]
    fn a_circle_is_named_from_each_of_its_members() {
        let edges = "A>t t>B B>u u>A";
        assert_eq!(circle("A", edges).unwrap(), "cycle: Agent/A → Tool/t → Agent/B → Tool/u → Agent/A");
        assert_eq!(circle("u", edges).unwrap(), "cycle: Tool/u → Agent/A → Tool/t → Agent/B → Tool/u");
        assert_eq!(circle("A", "A>t t>A").unwrap(), "cycle: Agent/A → Tool/t → Agent/A");
        assert_eq!(circle("A", "A>A").unwrap(), "cycle: Agent/A → Agent/A");
    }

    #[test]
    fn a_node_that_only_leads_into_a_circle_is_no_member() {
        assert_eq!(circle("X", "X>t t>A A>t"), None);
        assert_eq!(circle("X", "X>t X>u t>B u>B B>v"), None);
        assert_eq!(circle("X", ""), None);
    }

    #[test]
    fn a_way_back_is_found_beside_other_circles_and_dead_ends() {
        let edges = "A>t A>u t>C C>w w>C u>D D>x x>A";
        assert_eq!(circle("A", edges).unwrap(), "cycle: Agent/A → Tool/u → Agent/D → Tool/x → Agent/A");
    }

    #[test]
    fn each_object_is_looked_at_once() {
        // Thirty levels with two edges each give a billion paths.
        let edges: String = (0..30).map(|n| format!("a{n}>l{n} a{n}>r{n} l{n}>a{} r{n}>a{} ", n + 1, n + 1)).collect();
        assert_eq!(circle("a0", &edges), None);
    }
}
