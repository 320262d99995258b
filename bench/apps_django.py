"""A Django application in one file, without a database: URLs, middleware, a validated form, JSON.

Copied next to each server, like `apps.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import django
from bench_apps import API_WAIT, api_document  # type: ignore[import-not-found]
from django import forms
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django.middleware.security.SecurityMiddleware", "django.middleware.common.CommonMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not a secret: this is a benchmark",
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402


class Wanted(forms.Form):  # type: ignore[misc]
    """The query."""

    page = forms.IntegerField(min_value=1, max_value=1000)
    sort = forms.ChoiceField(choices=[(one, one) for one in ("name", "price", "-price", "newest", "rating")])
    q = forms.CharField(max_length=100)


async def items(request: HttpRequest, number: int, name: str) -> JsonResponse:
    """What an API does: validate, wait for a database, answer with 2 KB."""
    wanted = Wanted(request.GET)
    if not wanted.is_valid():
        return JsonResponse(wanted.errors, status=422)
    cleaned: dict[str, Any] = wanted.cleaned_data
    await asyncio.sleep(API_WAIT)
    return JsonResponse(api_document(number, cleaned["page"]))


urlpatterns = [path("items/<int:number>/<slug:name>", items)]
application = get_asgi_application()
