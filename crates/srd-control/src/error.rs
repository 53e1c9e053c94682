//! Errors of the API: a code that programs compare, a text, and the status of HTTP.

use std::fmt;

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Code, for example `InvalidVpcID.NotFound`.
    pub code: String,
    /// Description of the error, as a text for people.
    pub message: String,
    /// Status code of the HTTP answer.
    pub status: u16,
}

/// Result of an action.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error that the client has caused, with status 400.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), status: 400 }
    }

    /// An error with this status.
    pub fn with_status(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), status }
    }

    /// A parameter has a wrong value.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterValue", message)
    }

    /// Parameters exclude each other.
    pub fn combination(message: impl Into<String>) -> Self {
        Self::new("InvalidParameterCombination", message)
    }

    /// A parameter is missing.
    pub fn missing(name: &str) -> Self {
        Self::new("MissingParameter", format!("The request must contain the parameter {name}"))
    }

    /// An object cannot be deleted while other objects use it.
    pub fn in_use(message: impl Into<String>) -> Self {
        Self::new("DependencyViolation", message)
    }

    /// A limit of the service is reached.
    pub fn limit(code: &str, message: impl Into<String>) -> Self {
        Self::new(code, message)
    }

    /// A defect of this program: the model and an answer do not match, or the store fails.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::with_status(500, "InternalError", message)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}
