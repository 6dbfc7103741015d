"""URLs of the state server."""

from django.urls import path

from . import published, views
from .api import api, query

#: Answers to unknown paths.
handler404 = views.not_found

urlpatterns = [
    path("api/v1/jobs/<job>/query", query),  # overrides the same path of `api`, and takes half the time without Ninja
    path("", published.home),
    path("init/", published.init),
    path("apply/", published.apply),
    path("reset/", published.reset),
    path("api/v1/", api.urls),
    path("dashboard", views.redirect_to_dashboard),
    path("dashboard/", views.dashboard),
    path("metrics", views.metrics),
]
