"""A weblog in one file: Django with its ORM on SQLite, templates, middleware and JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

POSTS, COMMENTS = 300, 4
SENTENCE = "the sea was calm that morning and the boats lay still beneath a pale sky"
LAYOUT = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{% block title %}{% endblock %}</title>
</head><body><header><a href="/">Weblog</a></header><main>{% block main %}{% endblock %}</main></body></html>"""
LIST = """{% extends "layout.html" %}{% block title %}Posts{% endblock %}{% block main %}
{% for post in posts %}<article><h2><a href="/posts/{{ post.id }}/">{{ post.title }}</a></h2>
<p>{{ post.text|truncatewords:30 }}</p><p>{{ post.written|date:"j F Y" }}, {{ post.author.username }},
{{ post.said }} comment{{ post.said|pluralize }}</p></article>{% endfor %}
<nav>{{ page }}</nav>{% endblock %}"""
DETAIL = """{% extends "layout.html" %}{% block title %}{{ post.title }}{% endblock %}{% block main %}
<h1>{{ post.title }}</h1>{{ post.text|linebreaks }}<ol>{% for comment in post.comments.all %}
<li>{{ comment.name }}: {{ comment.text }}</li>{% endfor %}</ol>{% endblock %}"""

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("BLOG_DATABASE", "blog.sqlite"),
            "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL", "transaction_mode": "IMMEDIATE"},
        }
    },
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not a secret: this weblog is a benchmark",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": ["django.contrib.auth.context_processors.auth"],
                "loaders": [
                    (
                        "django.template.loaders.cached.Loader",
                        [
                            (
                                "django.template.loaders.locmem.Loader",
                                {"layout.html": LAYOUT, "list.html": LIST, "detail.html": DETAIL},
                            )
                        ],
                    )
                ],
            },
        }
    ],
    USE_TZ=True,
)
django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.paginator import Paginator  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.shortcuts import get_object_or_404, render  # noqa: E402
from django.utils import timezone  # noqa: E402


class Post(models.Model):
    """An article."""

    title = models.CharField(max_length=120)
    text = models.TextField()
    author = models.ForeignKey(User, models.CASCADE)
    written = models.DateTimeField(db_index=True)

    class Meta:
        app_label = "blog"


class Comment(models.Model):
    """What a reader says to it."""

    post = models.ForeignKey(Post, models.CASCADE, related_name="comments")
    name = models.CharField(max_length=60)
    text = models.TextField()

    class Meta:
        app_label = "blog"


def posts(request: HttpRequest) -> HttpResponse:
    """Ten posts, perhaps of those with a word."""
    found = Post.objects.select_related("author").annotate(said=models.Count("comments")).order_by("-written")
    if word := request.GET.get("q"):
        found = found.filter(text__contains=word)
    page = Paginator(found, 10).get_page(request.GET.get("page", "1"))
    return render(request, "list.html", {"posts": page, "page": page})


def post(request: HttpRequest, number: int) -> HttpResponse:
    """One post with its comments."""
    found = get_object_or_404(Post.objects.prefetch_related("comments"), pk=number)
    return render(request, "detail.html", {"post": found})


def comments(request: HttpRequest, number: int) -> JsonResponse:
    """Say something to a post, or list the latest comments."""
    if request.method == "POST":
        said: dict[str, Any] = json.loads(request.body)
        made = Comment.objects.create(post_id=number, name=said["name"], text=said["text"])
        return JsonResponse({"id": made.pk}, status=201)
    found = Comment.objects.filter(post_id=number).order_by("-id")[:20].values("id", "name", "text")
    return JsonResponse({"comments": list(found)})


urlpatterns = [
    path("", posts),
    path("posts/<int:number>/", post),
    path("posts/<int:number>/comments/", comments),
]


def fill() -> None:
    """Make the tables, with the same contents each time."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Post)
        editor.create_model(Comment)
    authors = [User.objects.create(username=name) for name in ("ada", "grace", "edsger")]
    now = timezone.now()
    words = SENTENCE.split()
    Post.objects.bulk_create(
        Post(
            id=n,
            title=" ".join(words[n % 7 : n % 7 + 5]).title(),
            text=" ".join(words[(n * k) % len(words)] for k in range(1, 181)),
            author=authors[n % 3],
            written=now - timezone.timedelta(hours=n),
        )
        for n in range(1, POSTS + 1)
    )
    Comment.objects.bulk_create(
        Comment(post_id=n % POSTS + 1, name=f"Reader {n % 40}", text="I had not seen it that way before.")
        for n in range(POSTS * COMMENTS)
    )


if __name__ == "__main__":
    Path(os.environ["BLOG_DATABASE"]).unlink(missing_ok=True)
    fill()
    sys.exit()

application = get_asgi_application()
