"""An agent: a model with tools. It is run, stopped, spoken to, held to limits, and taken up again.

`endstop run examples/agent_loop.py "Rain in Bergen?"` runs it from the command line.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict

from endstop import Loop, LoopLimits, ModelAgent, OpenAICompatible, Runtime, Say, Scripted, tool

done = []
begun = defaultdict(asyncio.Event)


@tool(effect="read_only", resources=[])
async def weather(city: str) -> str:
    """The weather in a city, now."""
    done.append(f"weather {city}")
    return f"It rains in {city}."


@tool
async def book(city: str) -> str:
    """Book a room."""
    done.append(f"book {city}")
    begun[city].set()
    if os.environ.get("KILLED_IN") == city:
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.2)
    return f"a room in {city}"


def script(*replies):
    """An agent whose model says what it is given to say; `agent` asks a real one, with a key."""
    return ModelAgent(
        name="travel",
        model=Scripted(list(replies)),
        tools=[weather, book],
        instructions="You plan trips. Look at the weather before you book.",
        limits=LoopLimits(turns=20, calls=50, money="2 USD", wall_s=300),
    )


def asks(*calls, text=""):
    return Say(text=text, calls=[(name, {"city": city}) for name, city in calls])


ANSWER = [asks(("weather", "Bergen"), text="Let me look."), "It rains. Take an umbrella."]
agent = script(*ANSWER)
if os.environ.get("OPENAI_API_KEY"):
    agent.model = OpenAICompatible("gpt-5-mini")


async def run_it(runtime):
    """One prompt, one answer. What the model says can be shown while it says it."""
    result = await script(*ANSWER).run(runtime, "Rain in Bergen?")
    print(f"{result.ended}: {result.text} ({result.turns} turns, {result.calls} call)")


async def stop_it(runtime):
    """A stop reaches the model as well as its calls, from anywhere; the transcript still pairs."""
    busy = script(asks(("book", "Oslo"), ("book", "Rome")), "never said")
    going = asyncio.create_task(busy.run(runtime, "Book me a room.", run_id="trip"))
    await begun["Oslo"].wait()
    await runtime.cancel("trip")
    result = await going
    print(f"{result.ended}: {result.why}; {busy.model.left} reply was never asked for")
    for message in result.messages:
        if message["role"] == "tool":
            print(f"  {message['content'].partition(',')[0]}")


async def steer_it(runtime):
    """What a user says meanwhile skips the calls that have not begun. It is no cancel."""
    busy = script(asks(("book", "Bonn"), ("book", "Kyiv")), "Bonn it is.", "You are welcome.")
    run = busy.open(runtime)
    loop = Loop(runtime, run, busy)
    loop.say("Book Bonn and Kyiv.")
    going = asyncio.create_task(loop.drive(close=True))
    await begun["Bonn"].wait()
    loop.steer("Bonn is enough.")
    loop.say("Thank you.")
    for message in (await going).messages:
        said = message["content"] or "(calls)"
        print(f"  {message['role']}: {said}")


async def limit_it(runtime):
    """A model that never ends is ended, with a reason."""
    endless = script(*[asks(("weather", "Bergen"))] * 9)
    endless.limits = LoopLimits(turns=3)
    result = await endless.run(runtime, "Tell me when it stops.")
    print(f"{result.ended}: {result.why}")


async def lose_it(journal):
    """Whoever opens the journal of a loop that was killed goes on with it."""
    await asyncio.to_thread(subprocess.run, [sys.executable, __file__, journal], check=False)
    done.clear()
    async with Runtime(journal=journal) as runtime:
        heir = script("Lima is booked. Of Cusco I do not know.")
        result = await heir.resume(runtime, "peru")
    for message in result.messages[2:4]:
        print(f"  {message['content'].partition(':')[0]}")
    print(f"{result.ended}: {result.text} ({len(done)} calls made again)")


async def be_killed(journal):
    """What the other program does until it is killed, in the middle of a batch."""
    os.environ["KILLED_IN"] = "Cusco"
    async with Runtime(journal=journal) as runtime:
        lost = script(asks(("book", "Lima"), ("book", "Cusco")))
        await lost.run(runtime, "Lima and Cusco!", run_id="peru")


async def main():
    async with Runtime() as runtime:
        await run_it(runtime)
        await stop_it(runtime)
        await steer_it(runtime)
        await limit_it(runtime)
    with tempfile.TemporaryDirectory() as folder:
        await lose_it(f"{folder}/trips.db")


if __name__ == "__main__":
    asyncio.run(be_killed(sys.argv[1]) if sys.argv[1:] else main())
