//! Ed25519 keys as the Secret holds them ([JSON Web Keys](https://www.rfc-editor.org/rfc/rfc8037), RFC 8037) and as a
//! Pod's template does (the public parts alone).

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::claims::Claims;

/// Key in the Secret's data of the pair that signs.
const CURRENT: &str = "current";
/// Key in the Secret's data of the pair that signs after the next rotation.
const NEXT: &str = "next";

/// Error of a key that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// The Secret has no key of this name.
    #[error("it has no key {0:?}")]
    Missing(&'static str),
    /// The value is not an Ed25519 key.
    #[error("{0} holds no Ed25519 key as a JSON Web Key with kty, crv, d and x")]
    Unreadable(&'static str),
    /// A public key is not 32 bytes as base64url.
    #[error("{0:?} is not a public key: it takes the 32 bytes of an Ed25519 key as base64url")]
    Public(String),
}

/// Public key of a gateway: 32 bytes, and the id by which tokens refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; 32],
    /// Thumbprint of the key (RFC 7638), so that no id has to be stored.
    pub id: String,
}

impl PublicKey {
    fn new(bytes: [u8; 32]) -> Self {
        let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, BASE64.encode(bytes));
        Self { bytes, id: BASE64.encode(Sha256::digest(members)) }
    }

    /// Parses a key from base64url.
    ///
    /// # Errors
    /// The text is not 32 bytes.
    pub fn read(text: &str) -> Result<Self, KeyError> {
        let bytes = BASE64.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self::new).ok_or_else(|| KeyError::Public(text.to_owned()))
    }

    /// Returns the key as base64url.
    pub fn text(&self) -> String {
        BASE64.encode(self.bytes)
    }

    /// Reports whether the signature of the message was made by the pair of this key.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.bytes).verify(message, signature).is_ok()
    }
}

/// Parses the public keys of a Pod's template: base64url, separated by commas.
///
/// # Errors
/// The first key that cannot be read.
pub fn public_keys(text: &str) -> Result<Vec<PublicKey>, KeyError> {
    text.split(',').filter(|key| !key.is_empty()).map(PublicKey::read).collect()
}

/// Key pair, never printed.
pub struct KeyPair {
    seed: [u8; 32],
    pair: Ed25519KeyPair,
    /// Public key of the pair.
    pub public: PublicKey,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyPair").field("id", &self.public.id).finish_non_exhaustive()
    }
}

/// Key pair as a JSON Web Key.
#[derive(Serialize, Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    kid: Option<String>,
    /// Seed of the private key.
    d: String,
    /// Public key, which follows from the seed.
    x: String,
}

impl KeyPair {
    fn new(seed: [u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let public = PublicKey::new(pair.public_key().as_ref().try_into().ok()?);
        Some(Self { seed, pair, public })
    }

    /// Generates a new pair.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        // Cannot fail: any 32 bytes are a seed.
        Self::new(seed).ok_or(getrandom::Error::UNSUPPORTED)
    }

    fn read(name: &'static str, data: &BTreeMap<String, Vec<u8>>) -> Result<Self, KeyError> {
        let json = data.get(name).ok_or(KeyError::Missing(name))?;
        let read = || {
            let jwk: Jwk = serde_json::from_slice(json).ok()?;
            let seed = BASE64.decode(&jwk.d).ok()?.try_into().ok()?;
            let pair = Self::new(seed)?;
            (jwk.kty == "OKP" && jwk.crv == "Ed25519" && jwk.x == pair.public.text()).then_some(pair)
        };
        read().ok_or(KeyError::Unreadable(name))
    }

    fn jwk(&self) -> String {
        let jwk = Jwk {
            kty: "OKP".to_owned(),
            crv: "Ed25519".to_owned(),
            kid: Some(self.public.id.clone()),
            d: BASE64.encode(self.seed),
            x: self.public.text(),
        };
        serde_json::to_string(&jwk).unwrap_or_default()
    }
}

/// The two key pairs of an installation.
#[derive(Debug)]
pub struct KeySet {
    /// Pair that signs.
    pub current: KeyPair,
    /// Pair that signs after the next rotation.
    pub next: KeyPair,
}

impl KeySet {
    /// Generates two new pairs.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, getrandom::Error> {
        Ok(Self { current: KeyPair::generate()?, next: KeyPair::generate()? })
    }

    /// Returns the pairs after a rotation: the next pair, which all Pods know already, signs, and a new pair follows
    /// it.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn rotated(self) -> Result<Self, getrandom::Error> {
        Ok(Self { current: self.next, next: KeyPair::generate()? })
    }

    /// Parses the data of the Secret.
    ///
    /// # Errors
    /// A pair is missing or cannot be read.
    pub fn read(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, KeyError> {
        Ok(Self { current: KeyPair::read(CURRENT, data)?, next: KeyPair::read(NEXT, data)? })
    }

    /// Returns the data of the Secret.
    pub fn data(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::from([(CURRENT, self.current.jwk()), (NEXT, self.next.jwk())])
    }

    /// Returns the public keys as a Pod's template holds them.
    pub fn public(&self) -> String {
        format!("{},{}", self.current.public.text(), self.next.public.text())
    }

    /// Signs a token with `current`.
    pub(super) fn sign(&self, claims: &Claims<'_>) -> String {
        let header = serde_json::json!({ "alg": "EdDSA", "typ": "JWT", "kid": self.current.public.id });
        let claims = serde_json::to_vec(claims).unwrap_or_default();
        let mut token = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims));
        let signature = self.current.pair.sign(token.as_bytes());
        token.push('.');
        BASE64.encode_string(signature.as_ref(), &mut token);
        token
    }
}
