"""Signatures of AWS by botocore: of a request that came, and of requests that are made up, with their times. Usage: signatures.py COUNT."""

import json
import random
import string
import sys
from datetime import datetime, timezone

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.utils import percent_encode

from double import KEYS, SESSION

SERVICE = "bedrock"
SEED = 1


def authorization(credentials, region, time, method, url, headers, body):
    """Returns the header that botocore makes for these headers at this time."""
    request = AWSRequest(method=method, url=url, headers=headers, data=body)
    request.context["timestamp"] = time
    auth = SigV4Auth(credentials, SERVICE, region)
    canonical = auth.canonical_request(request)
    names = auth.signed_headers(auth.headers_to_sign(request))
    signature = auth.signature(auth.string_to_sign(request, canonical), request)
    return f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={names}, Signature={signature}"


def problem(lane, address, request):
    """Returns what is wrong with the signature of a request, if anything is."""
    variables, sent = lane["variables"], request.headers.get("authorization", "")
    if "AWS_BEARER_TOKEN_BEDROCK" in variables:
        return None
    _, _, rest = sent.partition("SignedHeaders=")
    names = rest.partition(",")[0].split(";")
    if not {"host", "x-amz-date"} <= set(names):
        return f"the signature is not of host and x-amz-date: {names}"
    headers = {name: request.headers.get(name, "") for name in names}
    if "AWS_ACCESS_KEY_ID" in variables:
        key, secret, session = (variables.get(f"AWS_{name}") for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"))
    else:
        key, secret, session = KEYS["AccessKeyId"], KEYS["SecretAccessKey"], SESSION
    credentials = Credentials(key, secret, session)
    time = request.headers["x-amz-date"]
    url = f"{address}{request.full}"
    expected = authorization(credentials, lane["region"], time, request.method, url, headers, request.body)
    return None if sent == expected else f"the signature is {sent}, not {expected}"


def made_up(count):
    """Returns requests with their signatures, the same each time."""
    chance = random.Random(SEED)
    letters = string.ascii_letters + string.digits

    def word(most, more=""):
        return "".join(chance.choices(letters + more, k=chance.randint(1, most)))

    for _ in range(count):
        model, body = "m" + word(60, "-._~:/%+=!$&'()*,;@ []ü€"), word(200, '"{}:,\\ \nü€')
        region = chance.choice(["eu-central-1", "us-east-1", "cn-north-1"])
        host = f"bedrock-runtime.{region}.amazonaws.com"
        url = f"https://{host}/model/{percent_encode(model, safe='')}/converse-stream"
        session = word(80, "+/=") if chance.random() < 0.5 else None
        key, secret = word(20), word(40, "+/")
        time = datetime.fromtimestamp(chance.randrange(2**31), timezone.utc)
        amz = time.strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": host, "x-amz-date": amz} | ({"x-amz-security-token": session} if session else {})
        credentials = Credentials(key, secret, session)
        yield {
            "url": url, "body": body, "region": region, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "key_id": key, "secret": secret,
            "session": session, "authorization": authorization(credentials, region, amz, "POST", url, headers, body.encode()),
        }


if __name__ == "__main__":
    for each in made_up(int(sys.argv[1])):
        print(json.dumps(each))
