# One app with its source in the template, over the one with its packages: nothing is to be copied in at a boot, and the server starts at once.
COPY . /home/user/app/source/
# A creation answers once the page does.
READY python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/', timeout=10)"
