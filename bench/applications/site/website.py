"""A small company's website: Starlette, Jinja2 templates, sessions, compressed pages, static files."""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

HERE = Path(__file__).parent
PRODUCTS = [
    {
        "number": number,
        "name": f"{('Oak', 'Birch', 'Ash', 'Elm')[number % 4]} {('table', 'chair', 'shelf')[number % 3]} {number}",
        "price": f"{number * 37 % 900 + 40}.00",
        "about": "Built to last for generations, from wood that grew within a day's walk of the workshop. " * 2,
    }
    for number in range(1, 121)
]
templates = Jinja2Templates(HERE / "templates")


async def home(request: Request) -> Response:
    """The first page."""
    seen = request.session.get("seen", [])
    return templates.TemplateResponse(request, "home.html", {"products": PRODUCTS[:12], "seen": seen})


async def catalogue(request: Request) -> Response:
    """Twenty-four products, perhaps of those with a word."""
    word, page = request.query_params.get("q", "").lower(), int(request.query_params.get("page", "1"))
    found = [one for one in PRODUCTS if word in str(one["name"]).lower()]
    shown = found[24 * (page - 1) : 24 * page]
    return templates.TemplateResponse(request, "catalogue.html", {"products": shown, "word": word, "page": page})


async def product(request: Request) -> Response:
    """One product; the session remembers it."""
    number = request.path_params["number"]
    if not 0 < number <= len(PRODUCTS):
        raise HTTPException(404)
    request.session["seen"] = [number, *request.session.get("seen", [])][:5]
    return templates.TemplateResponse(request, "product.html", {"product": PRODUCTS[number - 1]})


async def inquiry(request: Request) -> Response:
    """A form that was sent."""
    form = dict(item.split("=", 1) for item in (await request.body()).decode().split("&"))
    return JSONResponse({"thanks": form.get("name", ""), "words": form.get("text", "").count("+") + 1})


application = Starlette(
    routes=[
        Route("/", home),
        Route("/catalogue", catalogue),
        Route("/products/{number:int}", product),
        Route("/inquiry", inquiry, methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static"), name="static"),
    ],
    middleware=[
        Middleware(GZipMiddleware, minimum_size=500),
        Middleware(SessionMiddleware, secret_key="not a secret: this site is a benchmark"),
    ],
)
