"""Schemathesis, which makes requests of an OpenAPI document and judges the answers. Takes the arguments of `schemathesis`."""

from schemathesis.cli import schemathesis

schemathesis()
