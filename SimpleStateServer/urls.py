"""Which paths Django answers: the calls of `server.operations`, where no faster way leads to them."""

from django.urls import path

from .server import views

urlpatterns = [
    path("", views.call),
    path("init/", views.call),
    path("apply/", views.call),
    path("reset/", views.call),
    path("api/<path:rest>", views.call),
    path("dashboard", views.call),
    path("dashboard/", views.call),
    path("dashboard/<path:rest>", views.call),
]

handler400 = views.bad_request
handler404 = views.not_found
handler500 = views.server_error
