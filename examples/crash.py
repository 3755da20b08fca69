"""A program that is killed in the middle of a reply, and one that takes the run up again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from endstop import BlockingRuntime, Context, LostCall, Reconciled, ToolCall, tool

JOURNAL = "sqlite:crash.db"
BANK = "bank.txt"


def payments() -> str:
    return Path(BANK).read_text() if Path(BANK).exists() else ""


def ask_the_bank(lost: LostCall) -> Reconciled:
    return Reconciled(True, "paid") if lost.effect_key in payments() else Reconciled(False)


@tool(effect="once", reconcile=ask_the_bank)
def pay(ctx: Context, amount: int) -> str:
    with open(BANK, "a") as bank:
        bank.write(f"{ctx.effect_key} {amount}\n")
    if amount == 20:
        os.kill(os.getpid(), signal.SIGKILL)  # The power fails: the bank knows, we do not.
    return "paid"


def first_program() -> None:
    calls = [ToolCall(model_id=str(n), tool="pay", arguments={"amount": n}) for n in (10, 20, 30)]
    with BlockingRuntime([pay], journal=JOURNAL) as rt, rt.run("bills") as run:
        run.execute(calls, parallel=1)


def second_program() -> None:
    with BlockingRuntime([pay], journal=JOURNAL) as rt, rt.resume("bills") as run:
        for batch in run.finish():
            for result in batch:
                print(result.call_id, result.outcome, result.value)
        print("the bank has", payments().count("\n"), "payments")


def main() -> None:
    killed = subprocess.run([sys.executable, __file__, "first"])
    print("the first program was killed by signal", -killed.returncode)
    second_program()


if __name__ == "__main__":
    first_program() if sys.argv[1:] == ["first"] else main()
