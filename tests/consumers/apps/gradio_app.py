"""Two functions behind a page, one of which answers in pieces, with a queue."""

import gradio as gr


def greet(name):
    return f"Hello {name}"


def count(end):
    yield from (str(number) for number in range(int(end)))


with gr.Blocks(title="consumer") as demo:
    name, end, out = gr.Textbox(), gr.Number(), gr.Textbox()
    gr.Button("greet").click(greet, name, out, api_name="greet")
    gr.Button("count").click(count, end, out, api_name="count")

demo.launch()
