"""A chat that answers with what it is told."""

import chainlit as cl


@cl.on_message
async def main(message: cl.Message):
    await cl.Message(content=f"You said {message.content}").send()
