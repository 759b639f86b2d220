"""The official Python client against an MCP server at the URL given, in both eras: `mcp_clients.py SERVER URL`, where SERVER
says what the server is. Ends with `done`."""

import asyncio
import sys

from mcp import Client
from mcp_types import CreateMessageResult, ListRootsResult, TextContent


async def everything(client, modern):
    listed = await client.list_tools()
    assert "echo" in [tool.name for tool in listed.tools]
    calls = [client.call_tool("echo", {"message": f"m{n}"}) for n in range(20)]
    for n, result in enumerate(await asyncio.gather(*calls)):
        assert result.content[0].text == f"Echo: m{n}", result
    seen = []

    async def progressed(progress, total, message):
        seen.append(progress)

    await client.call_tool("trigger-long-running-operation", {"duration": 1, "steps": 4}, progress_callback=progressed)
    assert seen == [1, 2, 3, 4], seen
    resources = (await client.list_resources()).resources
    assert (await client.read_resource(resources[0].uri)).contents
    try:
        await asyncio.wait_for(client.call_tool("trigger-long-running-operation", {"duration": 60, "steps": 2}), 0.3)
        raise AssertionError("it waited")
    except asyncio.TimeoutError:
        pass
    assert (await client.call_tool("echo", {"message": "after"})).content[0].text == "Echo: after"
    sampled = await client.call_tool("trigger-sampling-request", {"prompt": "how", "maxTokens": 5})
    assert "sampled!" in str(sampled), sampled


async def filesystem(client, modern):
    root = (await client.call_tool("list_allowed_directories", {})).content[0].text.split("\n")[1]
    text = "é\n" * 100000
    await client.call_tool("write_file", {"path": f"{root}/p.txt", "content": text})
    assert (await client.call_tool("read_text_file", {"path": f"{root}/p.txt"})).content[0].text == text


async def memory(client, modern):
    entities = [{"name": "python", "entityType": "t", "observations": ["o"]}]
    await client.call_tool("create_entities", {"entities": entities})
    assert "python" in (await client.call_tool("read_graph", {})).content[0].text


async def time(client, modern):
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    calls = [client.call_tool("convert_time", arguments) for _ in range(20)]
    for result in await asyncio.gather(*calls):
        assert "T21:00:00+09:00" in result.content[0].text, result


async def fetch(client, modern):
    assert [tool.name for tool in (await client.list_tools()).tools] == ["fetch"]


async def sampling(context, params):
    return CreateMessageResult(role="assistant", model="m", content=TextContent(type="text", text="sampled!"))


async def roots(context):
    return ListRootsResult(roots=[])


async def main(server, url):
    for mode in ("legacy", "auto"):
        async with Client(url, mode=mode, sampling_callback=sampling, list_roots_callback=roots) as client:
            modern = client.protocol_version >= "2026"
            assert modern == (mode == "auto" and server in ("time", "fetch")), (mode, client.protocol_version)
            await globals()[server](client, modern)
            print(mode, client.protocol_version)
    print("done")


asyncio.run(main(*sys.argv[1:]))
