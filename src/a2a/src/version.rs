//! Versions of the protocol.

/// Header of a request that names the version of the protocol.
pub const VERSION_HEADER: &str = "A2A-Version";

/// Version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 1.0, in the JSON form of its protocol buffers.
    V1,
    /// 0.3, whose objects carry a `kind`.
    V03,
}

impl Version {
    /// Returns the value of [`VERSION_HEADER`]; `None` for 0.3, which is what a request without the header means.
    pub fn header(self) -> Option<&'static str> {
        match self {
            Self::V1 => Some("1.0"),
            Self::V03 => None,
        }
    }

    /// Returns the header of requests and responses that names the extensions in use, in lower case.
    pub fn extensions_header(self) -> &'static str {
        match self {
            Self::V1 => "a2a-extensions",
            Self::V03 => "x-a2a-extensions",
        }
    }

    /// Parses the version that a card names, with or without a patch number; `None` for any other version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        match (numbers.next(), numbers.next()) {
            (Some("1"), None | Some("0")) => Some(Self::V1),
            (Some("0"), Some("3")) => Some(Self::V03),
            _ => None,
        }
    }
}
