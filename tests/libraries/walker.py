"""The player of ``walking.py`` as a provider of Inspect."""

from inspect_ai.model import ChatMessageAssistant, ModelAPI, ModelOutput, modelapi
from inspect_ai.tool import ToolCall
from libraries.walking import walk


@modelapi(name="walker")
class Walker(ModelAPI):
    """The player by rules. With `script` it gives these answers in turn, over and over."""

    def __init__(self, model_name, base_url=None, api_key=None, config=None, script=(), **more):
        super().__init__(model_name, base_url, api_key, [], config)
        self.script, self.asked = script, []

    async def generate(self, input, tools, tool_choice, config):
        self.asked.append([message.text for message in input])
        text = self.script[(len(self.asked) - 1) % len(self.script)] if self.script else walk(self.asked[-1])
        if isinstance(text, ModelOutput):
            return text
        calls = [ToolCall(id=f"call{len(self.asked)}", function=tool.name, arguments={"action": text}) for tool in tools]
        message = ChatMessageAssistant(content="" if calls else text, tool_calls=calls or None)
        return ModelOutput.from_message(message)
