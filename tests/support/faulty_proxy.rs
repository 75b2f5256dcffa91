//! A proxy in front of an HTTP server that injects faults.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFate {
    /// It is answered.
    Answered,
    /// It does not arrive.
    RequestLost,
    /// It arrives, and its reply is lost.
    ReplyLost,
    /// It is neither answered nor rejected.
    NeverAnswered,
    /// It is answered, and no client can connect afterwards.
    LastConnection,
    /// The client sees a lost reply before the request arrives.
    Delayed,
}

/// Every request has its own connection.
pub struct FaultyProxy {
    pub address: SocketAddr,
    fates: Arc<Mutex<VecDeque<RequestFate>>>,
    late: Arc<Mutex<JoinSet<()>>>,
    _task: JoinSet<()>,
}

impl FaultyProxy {
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let fates = Arc::new(Mutex::new(VecDeque::new()));
        let late = Arc::new(Mutex::new(JoinSet::new()));
        let mut task = JoinSet::new();
        let (next, later) = (fates.clone(), late.clone());
        task.spawn(async move {
            let cut = Arc::new(Notify::new());
            loop {
                let client = tokio::select! {
                    Ok((client, _)) = listener.accept() => client,
                    () = cut.notified() => return,
                };
                let (next, later, cut) = (next.clone(), later.clone(), cut.clone());
                tokio::spawn(async move {
                    let _ = forward(client, server, &next, &later, &cut).await;
                });
            }
        });
        Self { address, fates, late, _task: task }
    }

    /// Sets what happens to the next requests; later ones pass.
    pub fn set_fates(&self, fates: impl IntoIterator<Item = RequestFate>) {
        *self.fates.lock().expect("no thread panicked") = fates.into_iter().collect();
    }

    /// Waits for requests that arrive late.
    pub async fn wait_for_delayed(&self) {
        let mut late = std::mem::take(&mut *self.late.lock().expect("no thread panicked"));
        while late.join_next().await.is_some() {}
    }
}

async fn forward(
    mut client: TcpStream,
    server: SocketAddr,
    fates: &Mutex<VecDeque<RequestFate>>,
    late: &Mutex<JoinSet<()>>,
    cut: &Notify,
) -> std::io::Result<()> {
    let request = read_request(&mut client).await?;
    let fate =
        fates.lock().expect("no thread panicked").pop_front().unwrap_or(RequestFate::Answered);
    match fate {
        RequestFate::Answered => client.write_all(&exchange(&request, server).await?).await,
        RequestFate::RequestLost => Ok(()),
        RequestFate::LastConnection => {
            let answer = exchange(&request, server).await?;
            cut.notify_one();
            tokio::time::sleep(Duration::from_millis(100)).await;
            client.write_all(&answer).await
        }
        RequestFate::NeverAnswered => {
            let gone = client.read_u8().await;
            gone.map(drop)
        }
        RequestFate::ReplyLost => exchange(&request, server).await.map(drop),
        RequestFate::Delayed => {
            late.lock().expect("no thread panicked").spawn(async move {
                tokio::time::sleep(Duration::from_millis(150)).await;
                exchange(&request, server).await.expect("it arrives");
            });
            Ok(())
        }
    }
}

/// Reads a complete request, which asks for its connection to be closed.
async fn read_request(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if bytes.len() >= head + 4 + length {
                bytes.splice(head..head, *b"\r\nconnection: close");
                return Ok(bytes);
            }
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn exchange(request: &[u8], server: SocketAddr) -> std::io::Result<Vec<u8>> {
    let mut connection = TcpStream::connect(server).await?;
    connection.write_all(request).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    Ok(answer)
}
