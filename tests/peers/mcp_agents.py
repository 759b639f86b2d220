"""The official Python client against the MCP server of a gateway, in both eras: `mcp_agents.py URL TOOL`, where TOOL is an
agent with the stub model. Ends with `done`."""

import asyncio
import sys

from mcp import Client
from mcp import MCPError


async def main(url, tool):
    for mode, revision in (("legacy", "2025-11-25"), ("auto", "2026-07-28")):
        async with Client(url, mode=mode) as client:
            assert client.protocol_version == revision, (mode, client.protocol_version)
            listed = (await client.list_tools()).tools
            assert [found.name for found in listed] == [tool], listed
            assert listed[0].input_schema["required"] == ["message"] and listed[0].description, listed
            calls = [client.call_tool(tool, {"message": f"hi {n}"}) for n in range(10)]
            for n, result in enumerate(await asyncio.gather(*calls)):
                assert not result.is_error and result.content[0].text == f"echo: hi {n}", result
            try:
                await client.call_tool("team_nobody", {"message": "hi"})
            except MCPError as error:
                assert error.code == -32602, error
            else:
                raise AssertionError("an agent that is not there answered")
            print(mode, client.protocol_version)
    print("done")


asyncio.run(main(*sys.argv[1:]))
