"""The same without an event loop: plain functions in threads, a deadline, a stop from outside."""

import threading
import time

from endstop import BlockingRuntime, Context, ToolCall, tool

begun = threading.Event()


@tool(effect="read_only", timeout=0.3)
def crawl(url: str, ctx: Context) -> str:
    """Takes longer than its 0.3 seconds of running time, and listens to a stop."""
    ctx.sleep(60)
    return url


@tool(grace=0.2)
def wedged(name: str) -> str:
    """Never looks at its context: nothing in this process can stop it."""
    begun.set()
    time.sleep(30)
    return name


def call(tool: str, **arguments: str) -> ToolCall:
    return ToolCall(model_id="", tool=tool, arguments=arguments)


def main() -> None:
    with BlockingRuntime([crawl, wedged]) as runtime:
        [late] = runtime.execute([call("crawl", url="https://example.com")])
        print(f"{late.tool}: {late.outcome}/{late.reason}, effect {late.effect}")

        def stop() -> None:
            begun.wait()
            run.cancel()

        with runtime.run() as run:
            threading.Thread(target=stop).start()
            [stuck] = run.execute([call("wedged", name="printer")])
        print(f"{stuck.tool}: {stuck.outcome}/{stuck.reason}, effect {stuck.effect}")
        print(f"stopped by: {stuck.stopped_by}, still running: {stuck.alive}")
        for view in runtime.calls():
            print(f"on the books: {view.tool}, abandoned: {view.abandoned}")


if __name__ == "__main__":
    main()
