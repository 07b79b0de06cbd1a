"""Tools: what a model can call. `@tool` makes one from a function's hints and docstring.

    @tool(read_only=True)
    def weather(city: str) -> str:
        "Current weather of a city."

Schemas are in schema.py, threads in threads.py; what runs a call is the loop.
"""
