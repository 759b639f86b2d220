//! What a user would notice of the rendering.
