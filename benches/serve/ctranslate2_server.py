"""CTranslate2 behind FastAPI: the same interface, with the asynchronous batches that CTranslate2 has itself.

    uvicorn --app-dir benches/serve ctranslate2_server:app

The environment names the model (CT2_MODEL), its tokenizer (CT2_TOKENIZER), the type of its numbers (CT2_TYPE) and its
workers (CT2_WORKERS).
"""
import asyncio
import os

import ctranslate2
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

workers = int(os.environ.get("CT2_WORKERS", "2"))
translator = ctranslate2.Translator(
    os.environ["CT2_MODEL"], compute_type=os.environ.get("CT2_TYPE", "default"), inter_threads=workers, intra_threads=2 // workers)
tokenizer = Tokenizer.from_file(os.environ["CT2_TOKENIZER"])
app = FastAPI()


class Body(BaseModel):
    q: str
    source: str
    target: str


@app.post("/translate")
async def translate(body: Body):
    tokens = tokenizer.encode(body.q, add_special_tokens=False).tokens
    found = translator.translate_batch([tokens + ["<eos>"]], asynchronous=True, beam_size=int(os.environ.get("CT2_BEAM", "1")))
    # The result is waited for in a thread, so that other requests are read.
    result = await asyncio.get_running_loop().run_in_executor(None, found[0].result)
    ids = [tokenizer.token_to_id(token) for token in result.hypotheses[0]]
    return {"translatedText": tokenizer.decode(ids)}
