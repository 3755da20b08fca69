"""Humans are asked: by a policy, through a handler, and from inside a body that runs."""

import asyncio

from endstop import (
    Approve,
    Ask,
    AsyncContext,
    Edit,
    Reject,
    Runtime,
    ToolCall,
    tool,
)


@tool(resources=())
async def pay(to: str, amount: int) -> str:
    return f"{amount} EUR to {to}"


@tool(resources=())
async def book(ctx: AsyncContext, city: str) -> str:
    seat = await ctx.ask(f"Train to {city}: which seat?", choices=["window", "aisle"])
    card = await ctx.ask("PIN of the card:", secret=True)
    return f"{seat} seat, paid with a PIN of {len(card)} digits"


def policy(call):
    """A before-hook: what is above 100 needs a human."""
    amount = call.arguments.get("amount", 0)
    return Ask(f"Pay {amount} EUR?", expires_s=3600) if amount > 100 else None


async def ask_anna(pending):
    """Stands for a chat message with buttons; None would leave the call pending."""
    print("anna reads:", pending.prompt, pending.arguments["to"])
    match pending.arguments["to"]:
        case "landlord":
            return Approve()
        case "club":
            return Edit({"to": "club", "amount": 50})
        case _:
            return Reject("we do not know them")


async def tell_anna(question):
    """The same for what a body asks while it runs."""
    print("asked:", question.text, question.choices or "in secret")
    return "1234" if question.secret else "window"


def call(name, **arguments):
    return ToolCall(model_id="", tool=name, arguments=arguments)


async def main():
    async with Runtime([pay, book], before=[policy], approve=ask_anna) as rt:
        results = await rt.execute(
            [
                call("pay", to="baker", amount=3),
                call("pay", to="landlord", amount=900),
                call("pay", to="club", amount=500),
                call("pay", to="stranger", amount=700),
            ],
            parallel=1,
        )
        for result in results:
            print(result.reason, "-", result.text.replace("\n", " "))

        rt.answer_with(tell_anna)
        (result,) = await rt.execute([call("book", city="Bern")])
        print(result.text)


asyncio.run(main())
