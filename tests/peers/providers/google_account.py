"""The service account of a lane, in Google's own library, which asks the double for tokens."""

import json

from google.oauth2 import service_account

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_known = {}


def credentials(lane):
    """Returns the credentials of a lane, the same each time, as a process has them."""
    text = lane["variables"]["GOOGLE_APPLICATION_CREDENTIALS"]
    if text not in _known:
        _known[text] = service_account.Credentials.from_service_account_info(json.loads(text), scopes=[SCOPE])
    return _known[text]
