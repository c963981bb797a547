"""`tapr serve`: a model behind HTTP that adapts to each of many streams on its own.

| module      | what it does                                                                    |
|-------------|---------------------------------------------------------------------------------|
| `settings`  | the settings of a server: paths and limits                                      |
| `plan`      | all that is needed to make an engine, here or in another process                |
| `engine`    | the queue, the batching window, and the one thread that owns the adapter        |
| `cluster`   | several engines behind one server; a stream belongs to one of them at a time    |
| `on_ray`    | these engines as deployments of Ray Serve                                       |
| `streams`   | many streams on one adapter: each has a state of its own, in memory or on disk  |
| `shelf`     | the folder of the states: streams, snapshots, and their model and method        |
| `seen`      | a stream's recent past, for the dashboard: classes, confidence, agreement       |
| `unadapted` | the source model: it answers late requests, and predicts a sample of the images |
| `health`    | the guard's verdict on a stream                                                 |
| `journal`   | the record of predictions, written before they are answered                     |
| `alarm`     | a webhook that gets a message when a stream's health changes                    |
| `images`    | bodies of requests to tensors                                                   |
| `security`  | tokens, scopes, rates, headers                                                  |
| `front`     | the middleware around every request: request id, origin, headers, log           |
| `reading`   | bodies, read within limits of size and time                                     |
| `api`       | the endpoints                                                                   |
| `http`      | the application: endpoints, pages, and the answers to errors                    |
| `answers`, `report`, `shown` | the contents of answers and of the dashboard                   |
| `tracing`   | spans of OpenTelemetry, and the stream that a line of the log is about          |
| `metrics`   | the metrics for Prometheus                                                      |
| `server`    | all of it together, from the command's options to uvicorn                       |

All of it needs the extra `torch-tapr[serve]`, and `on_ray` the extra `torch-tapr[serve-ray]`.
"""
