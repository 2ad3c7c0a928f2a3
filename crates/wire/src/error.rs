//! An error as clients see it.

use serde_json::{Value, json};

/// Why a request was not done. `code` is what programs decide on, `message` what people read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub status: u16,
    pub kind: &'static str,
    pub code: &'static str,
    pub param: Option<String>,
    pub message: String,
    pub retry_after_s: Option<u64>,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, kind, code, param: None, message: message.into(), retry_after_s: None }
    }

    /// A field is not what it must be.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(param.into()), ..ApiError::bad_request("invalid_value", message) }
    }

    /// 400: the request cannot be done as it stands.
    pub fn bad_request(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(400, "invalid_request_error", code, message)
    }

    pub fn unauthorised(message: impl Into<String>) -> ApiError {
        ApiError::new(401, "authentication_error", "invalid_api_key", message)
    }

    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(403, "permission_error", "forbidden", message)
    }

    pub fn not_found(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(404, "invalid_request_error", code, message)
    }

    /// 409: it is in a state that does not allow this.
    pub fn conflict(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(409, "invalid_request_error", code, message)
    }

    pub fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::new(413, "invalid_request_error", "request_too_large", message)
    }

    pub fn limited(message: impl Into<String>, retry_after_s: u64) -> ApiError {
        let error = ApiError::new(429, "rate_limit_error", "rate_limit_exceeded", message);
        ApiError { retry_after_s: Some(retry_after_s), ..error }
    }

    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "server_error", "server_error", message)
    }

    pub fn overloaded(message: impl Into<String>, retry_after_s: u64) -> ApiError {
        let error = ApiError::new(503, "server_error", "server_is_overloaded", message);
        ApiError { retry_after_s: Some(retry_after_s), ..error }
    }

    /// The body of an HTTP answer.
    pub fn body(&self) -> Value {
        json!({"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}})
    }

    /// The frame of a WebSocket.
    pub fn frame(&self, stream: Option<&str>) -> Value {
        let mut frame = self.body();
        frame["type"] = "error".into();
        frame["status"] = self.status.into();
        frame["headers"] = match self.retry_after_s {
            Some(seconds) => json!({"retry-after": seconds.to_string()}),
            None => json!({}),
        };
        if let Some(stream) = stream {
            frame["stream_id"] = stream.into();
        }
        frame
    }
}
