from fastapi import FastAPI
from fastapi.responses import HTMLResponse

app = FastAPI()


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    return "<title>golden boot</title>"


@app.get("/sum")
def total(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}
