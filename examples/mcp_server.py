"""The tools of an MCP server: hints as contracts, a stop that reaches it, a crash."""

import asyncio
import os
import sys

from endstop import McpServer, McpTerms, Runtime, ToolCall


def serve():
    """The server, a program of its own: any server in any language would do."""
    from mcp.server.mcpserver import Context, MCPServer
    from mcp_types import ToolAnnotations

    server = MCPServer("library")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def search(query: str, limit: int = 3) -> str:
        """Search the library."""
        return ", ".join(f"{query} {number}" for number in range(1, limit + 1))

    @server.tool()
    async def copy(book: str, ctx: Context) -> str:
        """Copy a book, page by page."""
        for page in range(600):
            await ctx.report_progress(page, 600, f"page {page}")
            await asyncio.sleep(0.1)
        return f"a copy of {book}"

    @server.tool()
    def burn() -> None:
        """End the server in the middle of a call."""
        os._exit(3)

    server.run("stdio")


def call(tool, **arguments):
    return ToolCall(model_id=tool, tool=tool, arguments=arguments)


async def main():
    command = [sys.executable, __file__, "serve"]
    # It keeps nothing between calls: where it does not confirm a stop, it may as well be killed.
    terms = McpTerms(unconfirmed="kill", confirm_s=0.5)
    async with McpServer.stdio(*command, name="library", terms=terms) as server:
        tools = await server.tools(prefix="library_")
        for tool in tools:
            print(tool.name, tool.declared.effect)
        async with Runtime(tools) as runtime:
            results = await runtime.execute(
                [
                    call("library_search", query="whales"),
                    call("library_search", query="whales", limit="many"),
                ]
            )
            for result in results:
                print(f"- {result.outcome}, effect {result.effect}: {result.value}")

            run = runtime.run()
            copying = asyncio.ensure_future(run.execute([call("library_copy", book="Moby Dick")]))
            await asyncio.sleep(0.5)
            await run.cancel()
            (result,) = await copying
            print(f"- {result.outcome}, effect {result.effect}")

            (result,) = await runtime.execute([call("library_burn")])
            print(f"- {result.outcome}, effect {result.effect}: {result.error}")

            (result,) = await runtime.execute([call("library_search", query="ashes", limit=1)])
            print(f"- {result.outcome}: {result.value}")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(main())
