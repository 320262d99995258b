"""``python -m uvicorn`` is the ``uvicorn`` command."""

import uvicorn

if __name__ == "__main__":
    uvicorn.main()
