"""Classes of libraries whose text is a property, or whose fields lie inside another object: where the data is stored.

A class is known by a pattern of its module and name, so no library is imported.
"""

from __future__ import annotations

from typing import Final

from ragmon.core.text import Path

_GEMINI: Final[Path] = ("candidates", 0, "content", "parts")
PROPERTIES: Final[dict[str, dict[str, Path]]] = {
    "google.genai.*.GenerateContentResponse": {"text": _GEMINI},
    "google.generativeai.*.BaseGenerateContentResponse": {"text": ("_result", *_GEMINI)},
    "haystack.*.ChatMessage": {"text": ("_content",), "content": ("_content",), "role": ("_role",)},
    "langchain_core.*.BaseMessage": {"text": ("content",)},
    "llama_index.*.BaseNode": {"node_id": ("id_",), "text": ("text_resource", "text")},
    "llama_index.*.ChatMessage": {"content": ("blocks",)},
    "llama_index.*.NodeWithScore": {name: ("node", name) for name in ("node_id", "text", "metadata")},
    "openai.*.Response": {"output_text": ("output",)},
    "pydantic_ai.*.ModelResponse": {"text": ("parts",)},
}
"""The path to the data of each property; a list stands for the text of its parts."""
INNER: Final[dict[str, str]] = {
    "collections.User*": "data",
    "dspy.*.Example": "_store",
    "proto.*.Message": "_pb",
}
"""The stored field that holds all fields or entries."""
MESSAGE, LIST, NUMBER = "message", "list", "number"
IN_C: Final[dict[str, str]] = {
    "google.protobuf.*.Message": MESSAGE,
    "google._upb.*.Repeated*Container": LIST,
    "numpy.ndarray": LIST,
    "numpy.number": NUMBER,
}
"""What C code holds, which is read by the methods of these classes."""
