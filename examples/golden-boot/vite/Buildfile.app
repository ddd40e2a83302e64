# One app with its source in the template, over the one with its packages: nothing is to be copied in at a boot, and the server starts at once.
COPY . /home/user/app/source/
# A creation answers once the page does.
READY node -e "fetch('http://127.0.0.1:5173/').then(page => process.exit(page.ok ? 0 : 1), () => process.exit(1))"
