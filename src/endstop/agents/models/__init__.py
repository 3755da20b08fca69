"""Models: the providers behind one small protocol, each in its own file and without an SDK.

What is asked and answered is in `protocol`; the bytes on the wire are in `http` and `sse`. Nothing
here runs a tool, and nothing imports an HTTP library before the first request.
"""

from endstop.agents.models.anthropic import Anthropic as Anthropic
from endstop.agents.models.http import HttpLimits as HttpLimits
from endstop.agents.models.openai import OpenAICompatible as OpenAICompatible
from endstop.agents.models.openai import OpenAIResponses as OpenAIResponses
from endstop.agents.models.protocol import Ask as Ask
from endstop.agents.models.protocol import Delta as Delta
from endstop.agents.models.protocol import Model as Model
from endstop.agents.models.protocol import ModelError as ModelError
from endstop.agents.models.protocol import ModelReply as ModelReply
from endstop.agents.models.protocol import Prices as Prices
from endstop.agents.models.protocol import Usage as Usage
from endstop.agents.models.scripted import Say as Say
from endstop.agents.models.scripted import Scripted as Scripted
