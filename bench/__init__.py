"""The benchmark harness: `python -m bench`.

It starts servers as processes, puts them under load one burst at a time, and compares them by pairs measured in the
same minute.
Nothing here imports a server: each measured server runs in its own interpreter.
"""
