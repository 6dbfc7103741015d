"""Which call is answered by which view: the four published ones."""

from django.urls import path

from .server import answers, views

urlpatterns = [
    path("", views.home),
    path("init/", views.init),
    path("apply/", views.apply),
    path("reset/", views.reset),
]

handler400 = answers.bad_request
handler404 = answers.not_found
handler500 = answers.server_error
