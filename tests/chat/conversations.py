"""Random conversations: with and without system texts, tools, documents, empty contents, lists as contents, odd orders of roles."""
import random

TEXTS = ["", "Hello", "What is 2+2?", "  padded \n", "line one\nline two\n", "Grüße, 世界! 🌍", "<b>\"quoted\" & 'single'</b>", "{{ not a tag }} {% %}",
         "<think>\nbecause\n</think>\n\nFour.", "</think>", "<tool_response>\nok\n</tool_response>", "a" * 40, "\t", "[INST] no [/INST]", "Ω ω É é ß İ"]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The \"city\""}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "default": 3}}, "required": ["city"]}, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {
        "a": {"type": ["number", "null"]}, "b": {"type": "array", "items": {"type": "number"}}, "c": {"type": "object", "properties": {"x": {"type": "boolean"}}}}}}},
    {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = [{}, {"city": "Köln", "days": 2}, {"a": 1.5, "b": [1, 2, None], "c": {"x": True}}, {"text": "a\n\"b\" <c>"}]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, probability):
        return self.random.random() < probability

    def content(self, images=False):
        text = self.random.choice(TEXTS)
        kind = self.random.random()
        if kind < 0.75:
            return text
        parts = [{"type": "text", "text": self.random.choice(TEXTS)} for _ in range(self.random.randint(0, 3))]
        if images and kind > 0.95:
            parts.insert(0, {"type": "image"})
        return parts

    def calls(self):
        made = []
        for i in range(self.random.randint(1, 2)):
            call = {"type": "function", "function": {"name": self.random.choice(["get_weather", "add"]), "arguments": self.random.choice(ARGUMENTS)}}
            if self.chance(0.5):
                call["id"] = f"call_{i:05d}"
            if self.chance(0.1):
                call = call["function"]
            if self.chance(0.1) and "function" in call:
                call["function"]["arguments"] = '{"city": "Bonn"}'
            made.append(call)
        return made

    def assistant(self, tools):
        message = {"role": "assistant", "content": self.content()}
        if tools and self.chance(0.5):
            message["tool_calls"] = self.calls()
            if self.chance(0.3):
                message["content"] = self.random.choice(["", None])
            if self.chance(0.1):
                del message["content"]
        if self.chance(0.2):
            message[self.random.choice(["reasoning_content", "thinking", "reasoning"])] = self.random.choice(TEXTS)
        if self.chance(0.03):
            message["tool_calls"] = []
        return message

    def messages(self, tools):
        made = []
        if self.chance(0.45):
            made.append({"role": self.random.choice(["system"] * 8 + ["developer"]), "content": self.content()})
        for _ in range(self.random.randint(0, 4)):
            made.append({"role": "user", "content": self.content(images=True)})
            answer = self.assistant(tools)
            made.append(answer)
            for call in answer.get("tool_calls") or []:
                tool = {"role": "tool", "content": self.random.choice([self.random.choice(TEXTS), '{"t": 20}'])}
                if self.chance(0.6):
                    tool["name"] = call.get("function", call)["name"]
                if "id" in call:
                    tool["tool_call_id"] = call["id"]
                made.append(tool)
            if answer.get("tool_calls") and self.chance(0.7):
                made.append(self.assistant(False))
        if self.chance(0.4) or not made:
            made.append({"role": "user", "content": self.content(images=True)})
        if self.chance(0.12):
            self.random.shuffle(made)
        if self.chance(0.05):
            self.random.choice(made)["role"] = self.random.choice(["user", "assistant", "tool", "critic"])
        return made

    def variables(self):
        tools = self.chance(0.35)
        made = {"messages": self.messages(tools), "add_generation_prompt": self.chance(0.5),
                "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
        made["tools"] = self.random.sample(TOOLS, self.random.randint(1, 3)) if tools else None
        made["documents"] = [{"title": "T", "text": "Some text"}] if self.chance(0.1) else None
        if self.chance(0.2):
            made["enable_thinking"] = self.chance(0.5)
        if self.chance(0.1):
            made["reasoning_effort"] = self.random.choice(["low", "high"])
        return made
