"""`tapr serve`: a model behind HTTP that adapts to each of many streams on its own.

| module      | what it does                                                                    |
|-------------|---------------------------------------------------------------------------------|
| `settings`  | what a server is told: paths and limits                                         |
| `plan`      | what an engine is made of, here or in another process                           |
| `engine`    | the queue, the batching window, and the one thread that owns the adapter        |
| `cluster`   | several engines behind one server; a stream belongs to one of them at a time    |
| `on_ray`    | these engines as deployments of Ray Serve                                       |
| `streams`   | many streams on one adapter: each has a state of its own, in memory or on disk  |
| `shelf`     | the folder of the states: streams, snapshots, what the folder belongs to        |
| `seen`      | what is remembered of a stream to be shown: classes, confidence, agreement      |
| `unadapted` | the model as it came: for late requests, and for a sample of the images         |
| `health`    | what the guard says about a stream                                              |
| `journal`   | the record of predictions, written before they are answered                     |
| `alarm`     | a webhook that is told when a stream's health changes                           |
| `images`    | bodies of requests to tensors                                                   |
| `security`  | tokens, scopes, rates, headers                                                  |
| `front`     | what every request goes through: request id, origin, headers, log               |
| `reading`   | bodies, read within limits of size and time                                     |
| `api`       | the endpoints                                                                   |
| `http`      | the application: endpoints, pages, what errors become                           |
| `answers`, `report`, `shown` | what is told and shown                                         |
| `tracing`   | spans of OpenTelemetry, and the stream that a line of the log is about          |
| `metrics`   | what Prometheus reads                                                           |
| `server`    | all of it together, from the command's options to uvicorn                       |

All of it needs the extra `torch-tapr[serve]`, and `on_ray` the extra `torch-tapr[serve-ray]`.
"""
