"""Django through ASGI: asynchronous and synchronous views, streaming, sessions in cookies, forms, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DEBUG=False,
    MIDDLEWARE=[
        "django.middleware.common.CommonMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="only for tests",
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)

from django.core.asgi import get_asgi_application  # noqa: E402  # needs the settings above
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


async def greet(request: HttpRequest, name: str) -> HttpResponse:
    return JsonResponse({"name": name, "q": request.GET.get("q"), "client": request.META["REMOTE_ADDR"]})


def form(request: HttpRequest) -> HttpResponse:
    upload = request.FILES["file"]
    return JsonResponse({"field": request.POST["field"], "name": upload.name, "size": upload.size})


async def visits(request: HttpRequest) -> HttpResponse:
    count = await request.session.aget("visits", 0) + 1
    await request.session.aset("visits", count)
    return HttpResponse(str(count))


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def numbers() -> AsyncIterator[str]:
        for number in range(1000):
            yield f"{number}\n"

    return StreamingHttpResponse(numbers(), content_type="text/plain")


urlpatterns = [
    path("greet/<str:name>", greet),
    path("form", form),
    path("visits", visits),
    path("stream", stream),
]

app = get_asgi_application()
