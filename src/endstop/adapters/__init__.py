"""Message formats and frameworks, each behind one thin file.

An adapter translates. It imports no SDK of a model provider, and no law is decided here.
A reply goes in as it was received and its tool calls come out; observations go in and the
messages that answer the calls come out, paired and in order (law 4 one-answer).
"""

from endstop.adapters.reply import Reply as Reply
from endstop.adapters.reply import read_reply as read_reply
